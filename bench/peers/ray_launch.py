"""Ray actors that import TensorFlow and use the original's network once: `python -m bench.peers.ray_launch COUNT`.

The time is from before Ray is imported until the last actor has answered; the memory is of all of Ray's processes then.
"""

import argparse
import json
import os
import time
from typing import Final

import numpy as np

from bench.peers.ray_session import session
from bench.peers.ready import network
from bench.processes import tree_pss_mb

__all__ = ["Player"]

_ACTIONS: Final = 4


class Player:
    """The actor."""

    def __init__(self) -> None:
        self._network = network()

    def ready(self) -> int:
        """Use the network once, and return how many numbers came of it."""
        return int(np.isfinite(self._network(np.ones((1, 10, 10, 1), np.float32)).numpy()).sum())


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many actors")
    count = parser.parse_args().count
    began = time.perf_counter()
    with session(count) as ray:
        kind = ray.remote(Player)
        players = [kind.remote() for _ in range(count)]
        numbers = ray.get([player.ready.remote() for player in players])
        figures = {"ready": time.perf_counter() - began, "pss": tree_pss_mb(os.getpid(), itself=True)}
    if numbers != [_ACTIONS] * count:
        raise SystemExit(f"the actors answered {numbers}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
