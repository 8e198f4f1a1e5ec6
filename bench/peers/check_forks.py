"""Round after round of forked processes, each of which trains a little and predicts: does any hang, or err?

`python -m bench.peers.check_forks ROUNDS COUNT`
"""

import json
import sys
import time
from typing import Final

from bench.peers.gather import gathering
from bench.peers.ready import CHECK
from bench.peers.zygote import Zygote

_PATIENCE_S: Final = 120.0
_ROUNDS_OF_A_ZYGOTE: Final = 10


def main(rounds: int, count: int) -> None:
    """Print how many processes hung and how many gave wrong results. A zygote serves ten rounds."""
    hung = wrong = 0
    began = time.perf_counter()
    for first in range(0, rounds, _ROUNDS_OF_A_ZYGOTE):
        with gathering() as gathered, Zygote(gathered.path) as way:
            for _ in range(min(_ROUNDS_OF_A_ZYGOTE, rounds - first)):
                way.start(count)
                ready = gathered.wait(count, _PATIENCE_S)
                gathered.tell(CHECK)
                answers = gathered.answers(_PATIENCE_S)
                hung += count - len(ready) + answers.count(None)
                wrong += ready.count(False) + answers.count(0)
                gathered.end()
                if len(ready) == count and None not in answers:
                    way.join()
    print(json.dumps({"checked": rounds * count, "hung": hung, "wrong": wrong, "taken": time.perf_counter() - began}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
