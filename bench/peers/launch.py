"""Starts many processes in one way and prints how long it took until all were ready, and their memory together.

`python -m bench.peers.launch WAY COUNT [FIRST]`: with FIRST, so many are started first, and COUNT of them again.
"""

import json
import os
import sys
import time
from typing import Final

from bench.peers.gather import Gathering, gathering, require_all
from bench.peers.starting import WAYS, Way
from bench.processes import tree_pss_mb
from gpusched.linux.processes import become_subreaper

_PATIENCE_S: Final = 400.0


def main(name: str, count: int, first: int) -> None:
    """Measure one way, its second start too if it keeps something for it."""
    become_subreaper()  # so that all processes are below this one, whoever started them
    with gathering() as gathered, WAYS[name](gathered.path) as way:
        figures = {"ready": _seconds(way, gathered, first), "pss": tree_pss_mb(os.getpid(), itself=way.belongs)}
        _end(way, gathered)
        if way.starts_again:
            figures["again"] = _seconds(way, gathered, count)
            _end(way, gathered)
    print(json.dumps(figures))


def _seconds(way: Way, gathered: Gathering, count: int) -> float:
    began = time.perf_counter()
    way.start(count)
    require_all(gathered.wait(count, _PATIENCE_S), count)
    return time.perf_counter() - began


def _end(way: Way, gathered: Gathering) -> None:
    gathered.end()
    way.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[-1]))
