"""Batches from a Ray actor to its driver by the object store, and calls: `python -m bench.peers.ray_batch ROW`."""

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bench.peers.ray_session import session
from bench.peers.steps import as_arrays, as_lists, check, number, percentiles

__all__ = ["Player"]

_UNDER_WAY: Final = 2  # batches asked for at a time, as ours has at most
_MESSAGE: Final = b"x" * 1024


class Player:
    """The actor: its batch is made once, and numbered for each call."""

    def __init__(self, kind: str) -> None:
        self._batch = as_lists() if kind == "lists" else as_arrays(np.uint8)

    def batch(self, count: int) -> Any:
        """Return the batch as number `count`."""
        number(self._batch, count)
        return self._batch

    def echo(self, message: bytes) -> bytes:
        """Return the message."""
        return message


def _batches(ray: Any, player: Any, times: int) -> dict[str, float]:
    """Return batches a second with two under way, and milliseconds of one alone, asked for and received."""
    for count in range(10):
        check(ray.get(player.batch.remote(count)), count)
    waiting = deque(player.batch.remote(count) for count in range(_UNDER_WAY))
    began = time.perf_counter()
    for count in range(times):
        check(ray.get(waiting.popleft()), count)
        waiting.append(player.batch.remote(count + _UNDER_WAY))
    rate = times / (time.perf_counter() - began)
    ray.get(list(waiting))
    taken = _taken(lambda: check(ray.get(player.batch.remote(7)), 7), times)
    return {"rate": rate, **percentiles([1000 * seconds for seconds in taken])}


def _calls(ray: Any, player: Any, times: int) -> dict[str, float]:
    """Return microseconds of a call with 1 KiB each way, and calls a second, one at a time."""
    _taken(lambda: ray.get(player.echo.remote(_MESSAGE)), 200)
    taken = _taken(lambda: ray.get(player.echo.remote(_MESSAGE)), times)
    return {**percentiles([1e6 * seconds for seconds in taken]), "rate": len(taken) / sum(taken)}


def _taken(action: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return taken


def main() -> None:
    """Measure one row, and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=["lists", "uint8", "reply"])
    parser.add_argument("--quick", action="store_true", help="a third of the batches")
    typed = parser.parse_args()
    times = {"lists": 12, "uint8": 300, "reply": 1500}[typed.row] // (3 if typed.quick else 1)
    with session(1) as ray:
        player = ray.remote(Player).remote(typed.row)
        measured = _calls if typed.row == "reply" else _batches
        figures = measured(ray, player, times)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
