"""Starts many processes in one way, and has them train while it is told to: `python -m bench.peers.training WAY COUNT`.

It says `ready` once, and then answers each line that it reads: `train` and `halt` with how many steps were trained,
`memory` with that of all processes together, in MB. It ends with its input.
"""

import os
import sys
from typing import Final

from bench.peers.gather import Gathering, gathering, require_all
from bench.peers.ready import HALT, TRAIN
from bench.peers.starting import WAYS
from bench.processes import tree_pss_mb
from gpusched.linux.processes import become_subreaper

__all__: list[str] = []

_PATIENCE_S: Final = 400.0


def main(name: str, count: int) -> None:
    """Start them, and do what is read."""
    become_subreaper()
    with gathering() as gathered, WAYS[name](gathered.path) as way:
        way.start(count)
        require_all(gathered.wait(count, _PATIENCE_S), count)
        print("ready", flush=True)
        for line in sys.stdin:
            memory = line.strip() == "memory"
            print(tree_pss_mb(os.getpid(), itself=way.belongs) if memory else _told(line.strip(), gathered), flush=True)
        gathered.end()
        way.join()


def _told(word: str, gathered: Gathering) -> int:
    """Have all processes train, or halt; return how many steps all of them have trained."""
    gathered.tell({"train": TRAIN, "halt": HALT}[word])
    if word == "train":
        return 0
    answers = gathered.answers(_PATIENCE_S)
    if None in answers:
        sys.exit("a process that trained has ended, or hangs")
    return sum(steps or 0 for steps in answers)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
