"""The most that any placing could allocate, by one who knows what comes."""

import heapq
from collections.abc import Callable, Sequence

from bench.queue_trace.trace import MILLI, Task

__all__ = ["clairvoyant"]


def clairvoyant(
    tasks: Sequence[Task], devices: int, width: int, score: Callable[[Sequence[int]], float]
) -> tuple[float, bool]:
    """Return how many devices one allocates who knows all that comes and must take whatever fits.

    True: that is exact. Beyond `width` states only the best are kept, those with the least free and the lowest `score`,
    and the true value may be a little more.
    """
    states, exact = {(MILLI,) * devices}, True
    for task in tasks:
        states = set().union(*(_after(free, task) for free in states))
        if len(states) > width:
            states = set(heapq.nsmallest(width, states, key=lambda free: sum(free) + score(free)))
            exact = False
    return devices - min(map(sum, states)) / MILLI, exact


def _after(free: tuple[int, ...], task: Task) -> set[tuple[int, ...]]:
    """Return what may be left of `free`, in rising order, once the task is placed; itself where it has no place."""
    if task.gpus:
        enough = free.count(MILLI) >= task.gpus
        return {(*[0] * task.gpus, *free[: len(free) - task.gpus]) if enough else free}
    fitting = {left: i for i, left in enumerate(free) if left >= task.milli}
    placed = ((*free[:i], left - task.milli, *free[i + 1 :]) for left, i in fitting.items())
    return {tuple(sorted(one)) for one in placed} or {free}
