"""Weights to Ray actors by its object store, put once and read by all: `python -m bench.peers.ray_weights`."""

import argparse
import json
import statistics
import time
from typing import Any, Final

from bench.peers.layers import made, sealed, version_of
from bench.peers.ray_session import session

__all__ = ["Receiver"]

RECEIVERS: Final = (8, 32)
_WARM: Final = 12


class Receiver:
    """The actor: it looks at the weights where they lie in the store."""

    def take(self, weights: Any) -> int:
        """Return the version of the weights."""
        return version_of(weights)


def _to(ray: Any, receivers: list[Any], versions: int) -> float:
    """Return the median of the milliseconds from before the weights are put until the last answered."""
    weights, taken = made(), []
    for version in range(1, _WARM + versions + 1):
        sealed(weights, version)
        began = time.perf_counter()
        stored = ray.put(weights)
        have = set(ray.get([receiver.take.remote(stored) for receiver in receivers]))
        taken.append(1000 * (time.perf_counter() - began))
        if have != {version}:
            raise RuntimeError(f"version {version} was put, the receivers have {have}")
    return statistics.median(taken[_WARM:])


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three versions instead of ten")
    typed = parser.parse_args()
    with session(max(RECEIVERS)) as ray:
        kind = ray.remote(Receiver)
        receivers = [kind.remote() for _ in range(max(RECEIVERS))]
        _to(ray, receivers, 1)  # until all have started
        versions = 3 if typed.quick else 10
        figures = {f"to_{count}": _to(ray, receivers[:count], versions) for count in RECEIVERS}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
