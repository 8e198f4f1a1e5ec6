"""Starts many processes in one way, has all of them train for a while, and prints their memory together.

`python -m bench.peers.training WAY COUNT SECONDS`
"""

import json
import os
import sys
import time
from typing import Final

from bench.peers.gather import gathering, require_all
from bench.peers.ready import HALT, TRAIN
from bench.peers.starting import WAYS
from bench.processes import tree_pss_mb
from gpusched.supervisor.kernel import become_subreaper

_PATIENCE_S: Final = 400.0
_LAST: Final = 19


def main(name: str, count: int, seconds: float) -> None:
    """Measure the memory when all are ready, and again after so many seconds of training."""
    become_subreaper()
    os.nice(_LAST)  # what is measured is memory: whatever else runs beside it comes first
    with gathering() as gathered, WAYS[name](gathered.path) as way:
        way.start(count)
        require_all(gathered.wait(count, _PATIENCE_S), count)
        figures = {"fresh": tree_pss_mb(os.getpid(), itself=way.belongs)}
        gathered.tell(TRAIN)
        time.sleep(seconds)
        figures["pss"] = tree_pss_mb(os.getpid(), itself=way.belongs)
        gathered.tell(HALT)
        figures["steps"] = sum(steps or 0 for steps in gathered.answers(_PATIENCE_S))
        gathered.end()
        way.join()
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
