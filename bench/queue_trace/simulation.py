"""A queue in simulated time: jobs come, start when the queue says so, and end."""

import heapq
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bench.queue_trace.trace import Arrival

__all__ = ["Queue", "simulate"]


class Queue(Protocol):
    """What decides when jobs start."""

    def arrive(self, job: Arrival) -> None:
        """Take a job in."""

    def end(self, number: int, now: float) -> None:
        """Note that a running job has ended."""

    def starts(self, now: float) -> list[int]:
        """Return the numbers of the jobs that start at this moment."""

    def next_start(self) -> float | None:
        """Return when it wants to be asked again although nothing came or ended; None for never."""


def simulate(coming: Sequence[Arrival], queue: Queue, devices: int) -> dict[str, float]:
    """Run the queue until all jobs have ended. Return waits in hours and the use of the devices in %.

    `use %` counts from the moment when a tenth of the jobs has come until the last one comes. Jobs of 2 to 8 whole
    devices are `large`; `one` and `share` are those of one and of a part of one. `slowdown` is (wait + run) / run, with
    runs of 10 s at least.
    """
    began = _began(coming, queue)
    came, run = np.array([one.came for one in coming]), np.array([one.task.run_s for one in coming])
    size, gpus = np.array([one.task.size for one in coming]), np.array([one.task.gpus for one in coming])
    wait = began - came
    first, last = came[len(coming) // 10], came[-1]
    busy = size * np.maximum(0, np.minimum(began + run, last) - np.maximum(began, first))
    found = {
        "mean wait h": wait.mean() / 3600,
        "p95 wait h": np.quantile(wait, 0.95) / 3600,
        "slowdown": np.maximum(1, (wait + run) / np.maximum(run, 10)).mean(),
        "use %": 100 * busy.sum() / devices / (last - first),
    }
    for name, those in (("share", gpus == 0), ("one", gpus == 1), ("large", gpus > 1)):
        if those.any():
            found[f"{name} wait h"] = wait[those].mean() / 3600
            found[f"worst {name} wait h"] = wait[those].max() / 3600
    return {name: float(value) for name, value in found.items()}


def _began(coming: Sequence[Arrival], queue: Queue) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return when each job starts, in seconds."""
    began, ends, i = np.full(len(coming), np.nan), list[tuple[float, int]](), 0
    while i < len(coming) or ends or queue.next_start() is not None:
        moments = [*(one.came for one in coming[i : i + 1]), *(end for end, _ in ends[:1]), queue.next_start()]
        now = min(moment for moment in moments if moment is not None)
        while ends and ends[0][0] <= now:
            queue.end(heapq.heappop(ends)[1], now)
        while i < len(coming) and coming[i].came <= now:
            queue.arrive(coming[i])
            i += 1
        for number in queue.starts(now):
            began[number] = now
            heapq.heappush(ends, (now + coming[number].task.run_s, number))
    if np.isnan(began).any():
        raise RuntimeError(f"{int(np.isnan(began).sum())} jobs never started")
    return began
