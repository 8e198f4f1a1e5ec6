"""What is measured: how full a host gets, how long jobs wait, and how long one pass over the queue takes."""

import heapq
import statistics
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

import numpy as np

from bench.queue_trace.bounds import clairvoyant
from bench.queue_trace.ours import Gpusched, LaunchPlacement, RunPlacement, host, submission_of
from bench.queue_trace.peers import Conservative, Counted, Fragmentation, PeerQueue, share_rules
from bench.queue_trace.simulation import Queue, simulate
from bench.queue_trace.trace import Arrival, Limits, Task, arrivals
from gpusched.scheduling.run_times import PRIOR, RunTimesSeen, kinds_of

__all__ = ["FRONTIER", "POPULATIONS", "QUEUES", "Contender", "pass_times", "predictions", "saturation", "waits"]

_ASKED_FOR: Final = 1.3
_STATES: Final = {8: 30_000}
_FEWER_STATES: Final = 150
_DAY_S: Final = 86_400.0
_LATE_S: Final = 60.0


class _Placement(Protocol):
    def place(self, task: Task) -> bool: ...


def saturation(tasks: Sequence[Task], devices: int, seed: int) -> dict[str, float]:
    """Return, for each rule, the allocated part of the host in % once tasks that never end have asked for 130 % of it.

    A task that has no place is left out. That is how FGD's authors measure.
    """
    random, coming = Random(seed), list[Task]()
    while sum(task.size for task in coming) < _ASKED_FOR * devices:
        coming.append(random.choice(tasks))
    hosts: dict[str, _Placement] = {"gpusched run": RunPlacement(host(devices))}
    hosts["gpusched launch -d"] = LaunchPlacement(host(devices), None, grow=False)
    hosts["gpusched launch -d --policy spread"] = LaunchPlacement(host(devices), "spread", grow=False)
    hosts["gpusched launch, which grows"] = LaunchPlacement(host(devices), None, grow=True)
    hosts |= {name: Counted(devices, rule) for name, rule in share_rules(tasks, random).items()}
    found = {name: sum(one.size for one in coming if place.place(one)) for name, place in hosts.items()}
    most, _ = clairvoyant(coming, devices, _STATES.get(devices, _FEWER_STATES), Fragmentation(tasks).fragment)
    return {name: 100 * value / devices for name, value in (found | {"clairvoyant": most}).items()}


class Contender(NamedTuple):
    """A queue, and what users type and repeat before it: see `arrivals`."""

    name: str
    make: Callable[[Sequence[Task], int], Queue]
    limits: Limits = "none"
    spread: float | None = None


def _peer(mode: str, rule: str = "best fit", *, shortest_first: bool = False) -> Callable[[Sequence[Task], int], Queue]:
    def make(tasks: Sequence[Task], devices: int) -> Queue:
        prefer = share_rules(tasks, Random(0))[rule]
        return PeerQueue(devices, prefer, mode, shortest_first=shortest_first)  # type: ignore[arg-type]

    return make


def _ours(*, strict: bool = False, most_delay_s: float | None = None) -> Callable[[Sequence[Task], int], Queue]:
    return lambda _, devices: Gpusched(host(devices), strict=strict, most_delay_s=most_delay_s)


QUEUES: Final = (
    Contender("gpusched, commands repeated, spread 0.5", _ours(), spread=0.5),
    Contender("gpusched, commands repeated, spread 1", _ours(), spread=1.0),
    Contender("gpusched, commands repeated, spread 1.5", _ours(), spread=1.5),
    Contender("gpusched, shapes", _ours()),
    Contender("gpusched, shapes, limits 1 to 5 times too long", _ours(), "x1-5"),
    Contender("gpusched strict, no limits", _ours(strict=True)),
    Contender("gpusched strict, limits 1 to 5 times too long", _ours(strict=True), "x1-5"),
    Contender("gpusched strict, exact limits", _ours(strict=True), "exact"),
    Contender("FIFO", _peer("fifo")),
    Contender("EASY, limits 1 to 5 times too long", _peer("easy"), "x1-5"),
    Contender("EASY, exact limits", _peer("easy"), "exact"),
    Contender("EASY, FGD, limits 1 to 5 times too long", _peer("easy", "FGD"), "x1-5"),
    Contender("conservative, exact limits", lambda _, devices: Conservative(devices), "exact"),
    Contender("greedy: whatever fits", _peer("greedy")),
    Contender("shortest first, run times known", _peer("greedy", shortest_first=True)),
)


FRONTIER: Final = tuple(
    Contender(f"{name}, most_delay {days:g}d", _ours(most_delay_s=days * _DAY_S), spread=spread)
    for name, spread in (("spread 0.5", 0.5), ("spread 1", 1.0), ("spread 1.5", 1.5), ("shapes", None))
    for days in (0.5, 1, 2, 3, 5, 1000)
)
"""What the bound on a head's delay costs."""


POPULATIONS: Final = {"spread 0.5": 0.5, "spread 1": 1.0, "spread 1.5": 1.5, "shapes": None}
"""How far the run times of a command spread that people repeat; None: nothing repeats but the shapes of tasks."""


def predictions(tasks: Sequence[Task], jobs: int, seed: int, spread: float | None) -> dict[str, float]:
    """Return how near to the real run times predictions are, in %: the smaller by the larger, mean of all jobs.

    Each job runs as it comes. `ours` is the median of what is expected; the others are the mean of the last two of the
    same command or shape, a limit 1 to 5 times too long, and the median of all jobs that have ended.
    """
    coming = arrivals(tasks, 8, 0.9, jobs, seed, "x1-5", spread)
    ends, seen, same, every = list[tuple[float, int]](), RunTimesSeen(), dict[str, list[float]](), list[float]()
    near: dict[str, list[float]] = {"ours": [], "last two": [], "limits": [], "one median": []}
    for job in coming:
        while ends and ends[0][0] <= job.came:
            over = coming[heapq.heappop(ends)[1]]
            kinds = kinds_of(submission_of(over))
            seen.add(kinds, over.task.run_s)
            same.setdefault(kinds[0], []).append(over.task.run_s)
            insort(every, over.task.run_s)
        kinds = kinds_of(submission_of(job))
        for run_s in job.earlier:
            seen.add(kinds, run_s)
        middle = every[len(every) // 2] if every else PRIOR[len(PRIOR) // 2]
        two = (same.get(kinds[0], []) or list(job.earlier))[-2:]
        guesses = {"ours": statistics.median(seen.expected(kinds)), "limits": job.limit_s or 0.0, "one median": middle}
        guesses["last two"] = statistics.fmean(two) if two else middle
        for name, guess in guesses.items():
            near[name].append(100 * min(guess, job.task.run_s) / max(guess, job.task.run_s, 1e-9))
        heapq.heappush(ends, (job.came + job.task.run_s, job.number))
    return {name: statistics.fmean(values[jobs // 10 :]) for name, values in near.items()}


def waits(
    contenders: Sequence[Contender], tasks: Sequence[Task], devices: int, load: float, jobs: int, seed: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the waits of each queue, see `simulate`; of gpusched also how much later than expected heads started.

    That is in hours after the earliest moment for which a head was ever expected, for one in a hundred and at most.
    """
    for one in contenders:
        coming = arrivals(tasks, devices, load, jobs, seed, one.limits, one.spread)
        queue = one.make(tasks, devices)
        found = simulate(coming, queue, devices)
        if isinstance(queue, Gpusched) and queue.late_s:
            late = np.array(queue.late_s)
            found["heads late %"] = float(100 * (late > _LATE_S).mean())
            found["late p99 h"], found["latest h"] = float(np.quantile(late, 0.99)) / 3600, float(late.max()) / 3600
        yield one.name, found


def pass_times(tasks: Sequence[Task], devices: int, waiting: int, seed: int, limits: Limits) -> dict[str, float]:
    """Return the CPU time (ms) of a pass over so many waiting jobs: on an idle host, a full one, and after an end."""
    queue = Gpusched(host(devices))
    coming: list[Arrival] = arrivals(tasks, devices, 1.0, waiting + 8 * devices, seed, limits)
    for job in coming:
        queue.arrive(job)
    now = coming[-1].came
    for _ in range(4):
        queue.starts(now)
        queue.waiting = dict(list(queue.waiting.items())[:waiting])
    for number in list(queue.running)[:5]:
        queue.end(number, now)
        queue.starts(now)
    idle, full, after = queue.spent_s[0], statistics.median(queue.spent_s[2:4]), statistics.median(queue.spent_s[4:])
    return {"idle host": 1000 * idle, "full host": 1000 * full, "after an end": 1000 * after}
