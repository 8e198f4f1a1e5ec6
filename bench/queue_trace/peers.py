"""The peers: rules for the device of a share, and queues. They count in whole thousandths of a device."""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from bench.queue_trace.trace import MILLI, Arrival, Task

__all__ = ["Conservative", "Counted", "Fragmentation", "PeerQueue", "Prefer", "place", "share_rules"]

Free = Sequence[int]
"""How many thousandths of each device are free."""

Prefer = Callable[[Free, Sequence[int], Task], int]
"""(free, the devices with room, the task) -> the device of a share."""


class Fragmentation:
    """FGD: the device on which the expected fragment grows least, when the mix of `tasks` is what comes.

    Weng et al., USENIX ATC 2023, section 4.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        kinds = Counter((task.gpus, task.milli) for task in tasks)
        self._counts = np.array(list(kinds.values()), float)
        self._milli = np.array([milli for _, milli in kinds])[:, None]
        self._gpus = np.array([gpus or 1 for gpus, _ in kinds])

    def fragment(self, free: Free) -> float:
        """Return how many free thousandths a task of the mix cannot use, on average."""
        there = np.asarray(free, float)[None, :]
        useful = there >= self._milli
        used = (there * useful).sum(axis=1) * (useful.sum(axis=1) >= self._gpus)
        return float((self._counts * (there.sum() - used)).sum() / self._counts.sum())

    def __call__(self, free: Free, fitting: Sequence[int], task: Task) -> int:
        """Return the device for a share."""
        first = {free[i]: i for i in reversed(fitting)}
        scores = {left: self.fragment([*free[:i], left - task.milli, *free[i + 1 :]]) for left, i in first.items()}
        return first[min(scores, key=lambda left: (scores[left], left))]


def share_rules(tasks: Sequence[Task], random: Random) -> dict[str, Prefer]:
    """Return the rules by name."""
    return {
        "best fit": lambda free, fitting, _: min(fitting, key=lambda i: free[i]),
        "FGD": Fragmentation(tasks),
        "first fit": lambda _, fitting, __: fitting[0],
        "random fit": lambda _, fitting, __: random.choice(fitting),
        "worst fit": lambda free, fitting, _: max(fitting, key=lambda i: free[i]),
    }


def place(free: Free, task: Task, prefer: Prefer) -> tuple[int, ...] | None:
    """Return the devices that a task gets, or None if it has no place."""
    fitting = [i for i, left in enumerate(free) if left >= task.milli]
    if len(fitting) < (task.gpus or 1):
        return None
    return tuple(fitting[: task.gpus]) if task.gpus else (prefer(free, fitting, task),)


class Counted:
    """Devices on which a peer places tasks that never end."""

    def __init__(self, devices: int, prefer: Prefer) -> None:
        self._free, self._prefer = [MILLI] * devices, prefer

    def place(self, task: Task) -> bool:
        """Return whether the task had a place."""
        mine = place(self._free, task, self._prefer)
        for i in mine or ():
            self._free[i] -= task.milli
        return mine is not None


class _Running(NamedTuple):
    end: float  # by the limit that was typed
    task: Task
    devices: tuple[int, ...]


class PeerQueue:
    """`fifo`: no job passes another. `greedy`: whatever fits starts. `easy`: whatever does not delay the head starts.

    EASY backfill is Lifka 1995's: the head has a reservation by the limits that users typed, and a job passes if it
    ends before it by its own limit, or has a place beside the head's; `shortest_limit_first` tries those in that order.
    `shortest_first` knows the run times, and has no head.
    """

    def __init__(
        self,
        devices: int,
        prefer: Prefer,
        mode: Literal["fifo", "greedy", "easy"],
        *,
        shortest_first: bool = False,
        shortest_limit_first: bool = False,
    ) -> None:
        self._free, self._prefer, self._mode = [MILLI] * devices, prefer, mode
        self._key = (lambda one: one.task.run_s) if shortest_first else (lambda one: float(one.number))
        self._shortest_limit_first = shortest_limit_first
        self._waiting: list[Arrival] = []
        self._running: dict[int, _Running] = {}

    def arrive(self, job: Arrival) -> None:
        """Take a job in."""
        insort(self._waiting, job, key=self._key)

    def end(self, number: int, now: float) -> None:
        """Give free what the job had."""
        del now
        ended = self._running.pop(number)
        for i in ended.devices:
            self._free[i] += ended.task.milli

    def next_start(self) -> float | None:
        """Return None: it decides when something comes or ends."""
        return None

    def starts(self, now: float) -> list[int]:
        """Return what starts now."""
        started = list[int]()
        while self._waiting and (mine := place(self._free, self._waiting[0].task, self._prefer)) is not None:
            started.append(self._start(self._waiting.pop(0), mine, now))
        if self._mode == "easy" and self._waiting:
            started += self._backfill(now)
        elif self._mode == "greedy":
            started += [
                self._start(job, mine, now)
                for job in self._waiting
                if (mine := place(self._free, job.task, self._prefer)) is not None
            ]
        self._waiting = [job for job in self._waiting if job.number not in self._running]
        return started

    def _backfill(self, now: float) -> list[int]:
        """Start those behind the head that do not delay it."""
        head, *behind = self._waiting
        by, later = self._reservation(head.task, now)
        if self._shortest_limit_first:
            behind.sort(key=lambda job: job.limit_s or 0.0)
        started = list[int]()
        for job in behind:
            mine = place(self._free, job.task, self._prefer)
            if mine is not None and now + (job.limit_s or 0) > by:
                mine = self._beside(head.task, job.task, later)
            if mine is not None:
                started.append(self._start(job, mine, now))
        return started

    def _start(self, job: Arrival, devices: tuple[int, ...], now: float) -> int:
        for i in devices:
            self._free[i] -= job.task.milli
        self._running[job.number] = _Running(now + (job.limit_s or 0), job.task, devices)
        return job.number

    def _reservation(self, task: Task, now: float) -> tuple[float, list[int]]:
        """Return when the task fits by the limits that users typed, and what is free then."""
        later, by = list(self._free), now
        for one in sorted(self._running.values()):
            if place(later, task, self._prefer) is not None:
                break
            by = max(now, one.end)
            for i in one.devices:
                later[i] += one.task.milli
        return by, later

    def _beside(self, head: Task, task: Task, later: list[int]) -> tuple[int, ...] | None:
        """Return a place beside the head's for a task that outlasts the head's wait; it is taken in `later`."""
        fitting = sorted((i for i, left in enumerate(self._free) if left >= task.milli), key=lambda i: self._free[i])
        for mine in [tuple(fitting[-task.gpus :])] if task.gpus else [(i,) for i in fitting]:
            beside = [left - task.milli * (i in mine) for i, left in enumerate(later)]
            if min(beside) >= 0 and place(beside, head, self._prefer) is not None:
                later[:] = beside
                return mine
        return None


class Conservative:
    """Every job gets the earliest place that delays no earlier one. The run times are known, so that none moves."""

    def __init__(self, devices: int) -> None:
        self._steps = [([0.0], [MILLI]) for _ in range(devices)]  # of each device: from when on, how much is free
        self._due: list[tuple[float, int]] = []

    def arrive(self, job: Arrival) -> None:
        """Reserve its place."""
        task, number = job.task, job.task.gpus or 1
        for times, free in self._steps:
            past = bisect_right(times, job.came) - 1
            del times[:past], free[:past]
        for begin in sorted({max(job.came, moment) for times, _ in self._steps for moment in times}):
            least = [self._least(i, begin, begin + task.run_s) for i in range(len(self._steps))]
            mine = sorted((left, i) for i, left in enumerate(least) if left >= task.milli)[:number]
            if len(mine) == number:
                break
        for _, i in mine:
            self._take(i, begin, begin + task.run_s, task.milli)
        heapq.heappush(self._due, (begin, job.number))

    def end(self, number: int, now: float) -> None:
        """Nothing: the end was known."""

    def next_start(self) -> float | None:
        """Return the first reservation."""
        return self._due[0][0] if self._due else None

    def starts(self, now: float) -> list[int]:
        """Return what is reserved for now."""
        return [heapq.heappop(self._due)[1] for _ in range(sum(begin <= now for begin, _ in self._due))]

    def _least(self, device: int, begin: float, end: float) -> int:
        times, free = self._steps[device]
        return min(free[bisect_right(times, begin) - 1 : bisect_left(times, end)])

    def _take(self, device: int, begin: float, end: float, milli: int) -> None:
        times, free = self._steps[device]
        for moment in (begin, end):
            i = bisect_right(times, moment) - 1
            if times[i] != moment:
                times.insert(i + 1, moment)
                free.insert(i + 1, free[i])
        for i in range(bisect_left(times, begin), bisect_left(times, end)):
            free[i] -= milli
