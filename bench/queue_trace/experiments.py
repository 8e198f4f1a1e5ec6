"""What is measured: how full a host gets, how long jobs wait, how well that is foretold, how long a pass takes."""

import heapq
import statistics
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

import numpy as np

from bench.queue_trace.bounds import clairvoyant
from bench.queue_trace.ours import Gpusched, LaunchPlacement, RunPlacement, host, launch_of, submission_of
from bench.queue_trace.peers import Conservative, Counted, Fragmentation, PeerQueue, share_rules
from bench.queue_trace.simulation import Queue, simulate
from bench.queue_trace.trace import MILLI, SHAPES, Arrival, Limits, People, Task, arrivals
from gpusched.model.job import Submission
from gpusched.scheduling.run_times import PRIOR, RunTimesSeen, kinds_of

__all__ = [
    "BETWEEN",
    "CROWDS",
    "FRONTIER",
    "POPULATIONS",
    "QUEUES",
    "STREAM",
    "Contender",
    "forecasts",
    "pass_times",
    "predictions",
    "saturation",
    "shares_and_whole_hosts",
    "waits",
]

_ASKED_FOR: Final = 1.3
_STATES: Final = {8: 30_000}
_FEWER_STATES: Final = 150
_DAY_S: Final = 86_400.0
_LATE_S: Final = 60.0
_ASKED_ABOUT: Final = 40
"""One in so many jobs, if it waits, is asked about when it comes."""

_WHOLE_HOST_S: Final = 3600.0
_RUNS_BEFORE: Final = 50


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


POPULATIONS: Final = {
    "spread 0.5": People(0.5),
    "spread 1": People(1.0),
    "spread 1.5": People(1.5),
    "spread 1, a third of the commands new": People(1.0, 1 / 3),
    "shapes": SHAPES,
}
"""How far the run times of a command spread that people repeat; `shapes`: nothing repeats but what tasks ask for."""


class Contender(NamedTuple):
    """A queue, and what its users type and repeat."""

    name: str
    make: Callable[[Sequence[Task], int], Queue]
    limits: Limits = "none"
    people: People = SHAPES


def _peer(
    mode: str, rule: str = "best fit", *, shortest_first: bool = False, shortest_limit_first: bool = False
) -> Callable[[Sequence[Task], int], Queue]:
    def make(tasks: Sequence[Task], devices: int) -> Queue:
        prefer = share_rules(tasks, Random(0))[rule]
        return PeerQueue(
            devices,
            prefer,
            mode,  # type: ignore[arg-type]
            shortest_first=shortest_first,
            shortest_limit_first=shortest_limit_first,
        )

    return make


def _ours(
    *, strict: bool = False, most_delay_s: float | None = None, pass_every_s: float | None = None
) -> Callable[[Sequence[Task], int], Queue]:
    return lambda _, devices: Gpusched(
        host(devices), strict=strict, most_delay_s=most_delay_s, pass_every_s=pass_every_s
    )


_REPEATED: Final = tuple(
    Contender(f"gpusched, commands repeated, {name}", _ours(), people=people)
    for name, people in POPULATIONS.items()
    if people.spread is not None
)
_SHAPES: Final = Contender("gpusched, shapes", _ours())
_LAUNCHES: Final = tuple(
    Contender(
        f"gpusched, all as launches of one process, {name}",
        lambda _, devices: Gpusched(host(devices), submitted=launch_of),
        people=POPULATIONS[name],
    )
    for name in ("spread 1", "shapes")
)
_FIFO: Final = Contender("FIFO", _peer("fifo"))
_EASY: Final = Contender("EASY, limits 1 to 5 times too long", _peer("easy"), "x1-5")
_GREEDY: Final = Contender("greedy: whatever fits", _peer("greedy"))

QUEUES: Final = (
    *_REPEATED,
    _SHAPES,
    *_LAUNCHES,
    Contender("gpusched, shapes, limits 1 to 5 times too long", _ours(), "x1-5"),
    Contender("gpusched strict, no limits", _ours(strict=True)),
    Contender("gpusched strict, limits 1 to 5 times too long", _ours(strict=True), "x1-5"),
    Contender("gpusched strict, exact limits", _ours(strict=True), "exact"),
    _FIFO,
    _EASY,
    Contender(
        "EASY, limits 1 to 5 times too long, shortest first", _peer("easy", shortest_limit_first=True), limits="x1-5"
    ),
    Contender("EASY, exact limits", _peer("easy"), "exact"),
    Contender("EASY, FGD, limits 1 to 5 times too long", _peer("easy", "FGD"), "x1-5"),
    Contender("conservative, exact limits", lambda _, devices: Conservative(devices), "exact"),
    _GREEDY,
    Contender("shortest first, run times known", _peer("greedy", shortest_first=True)),
)

FRONTIER: Final = tuple(
    Contender(f"{name}, most_delay {days:g}d", _ours(most_delay_s=days * _DAY_S), people=people)
    for name, people in POPULATIONS.items()
    if not people.new
    for days in (0.5, 1, 2, 3, 5, 1000)
)
"""What the bound on a head's delay costs."""

BETWEEN: Final = tuple(
    Contender(f"{name}, passes {when}", _ours(pass_every_s=every_s), people=POPULATIONS[name])
    for name in ("spread 0.5", "spread 1", "shapes")
    for when, every_s in (("at arrivals and ends", None), ("each minute between, too", 60.0))
)
"""Whether it matters that the daemon decides more often than when something comes or ends."""

STREAM: Final = (*_REPEATED[:2], _SHAPES, _FIFO, _EASY, _GREEDY)


def shares_and_whole_hosts(tasks: Sequence[Task], devices: int) -> list[Task]:
    """Return the tasks that want a part of a device; one in 200 is another, which wants all devices for an hour."""
    shares = [task for task in tasks if not task.gpus]
    return shares + [Task(devices, MILLI, _WHOLE_HOST_S, ("the whole host",))] * (len(shares) // 199)


def predictions(tasks: Sequence[Task], jobs: int, seed: int, people: People) -> dict[str, float]:
    """Return how near to the real run times predictions are, in %: the smaller by the larger, mean of all jobs.

    Each job runs as it comes. `ours` is the median of what is expected; the others are the mean of the last two of the
    same command or shape, a limit 1 to 5 times too long, and the median of all jobs that have ended.
    """
    coming = arrivals(tasks, 8, 0.9, jobs, seed, "x1-5", people)
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
        for run_s in job.earlier or ():
            seen.add(kinds, run_s)
        middle = every[len(every) // 2] if every else PRIOR[len(PRIOR) // 2]
        two = (same.get(kinds[0], []) or list(job.earlier or ()))[-2:]
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
    `heads past the bound`: how many were late by more than most_delay; `beyond the bound`: how many of these started
    over a minute after what ran when they became so had left them room.
    """
    for one in contenders:
        coming = arrivals(tasks, devices, load, jobs, seed, one.limits, one.people)
        queue = one.make(tasks, devices)
        found = simulate(coming, queue, devices)
        if isinstance(queue, Gpusched) and queue.late_s:
            late = np.array(queue.late_s)
            found["heads late %"] = float(100 * (late > _LATE_S).mean())
            found["late p99 h"], found["latest h"] = float(np.quantile(late, 0.99)) / 3600, float(late.max()) / 3600
            found["heads past the bound"] = float(len(queue.beyond_s))
            found["beyond the bound"] = float(sum(each > _LATE_S for each in queue.beyond_s))
        yield one.name, found


class _Asking(Gpusched):
    """It asks about one in so many jobs when they come and wait, and notes when they begin."""

    def __init__(self, devices: int) -> None:
        super().__init__(host(devices))
        self.foretold: dict[int, list[float]] = {}
        self.began: dict[int, float] = {}

    def starts(self, now: float) -> list[int]:
        """Return what starts now."""
        found = super().starts(now)
        self.began |= dict.fromkeys(found, now)
        for number, job in self.waiting.items():
            if job.created == now and number % _ASKED_ABOUT == 0:
                self.foretold[number] = sorted(self.outlook(number, now).starts)
        return found


def forecasts(
    tasks: Sequence[Task], devices: int, load: float, jobs: int, seed: int, people: People
) -> dict[str, float]:
    """Return how well `gpusched why` foretells the starts of waiting jobs, in % of those that were asked about.

    `within`: between the first and the ninth tenth of what was foretold; `sooner` and `later` than these; `unknown`:
    nothing was foretold, as of those behind more than 200 jobs. `off h`: by how many hours the middle was wrong, in the
    median of the others. Empty where none was asked about.
    """
    queue = _Asking(devices)
    simulate(arrivals(tasks, devices, load, jobs, seed, "none", people), queue, devices)
    known = {number: starts for number, starts in queue.foretold.items() if starts}
    low, middle, high = (
        np.array([starts[len(starts) * part // 10] for starts in known.values()]) for part in (1, 5, 9)
    )
    began = np.array([queue.began[number] for number in known])
    asked = len(queue.foretold)
    if not asked:
        return {}
    counts = {"sooner": (began < low).sum(), "later": (began > high).sum(), "unknown": len(queue.foretold) - len(known)}
    found = {name: 100 * float(count) / asked for name, count in counts.items()}
    found = {"within": 100 - sum(found.values()), **found}
    return found | ({"off h": float(np.median(np.abs(began - middle))) / 3600} if known else {})


def _another_part(job: Arrival) -> Arrival:
    return job._replace(task=job.task._replace(gpus=0, milli=1 + job.number % MILLI))


class Crowd(NamedTuple):
    """What waits in a pass that is timed: how each job is submitted, and what differs from the trace."""

    submitted: Callable[[Arrival], Submission] = submission_of
    change: Callable[[Arrival], Arrival] = lambda job: job


CROWDS: Final = {
    "126 needs": Crowd(),
    "1,000 needs": Crowd(change=_another_part),
    "each command new": Crowd(change=lambda job: job._replace(earlier=())),
    "all launches of one process": Crowd(submitted=launch_of),
}


def pass_times(
    tasks: Sequence[Task], devices: int, waiting: int, seed: int, limits: Limits, crowd: str
) -> dict[str, float]:
    """Return the CPU time (ms) of a pass over so many waiting jobs: on an idle host, a full one, and after an end.

    `crowd`: which of CROWDS waits. Each shape has run fifty times before.
    """
    submitted, change = CROWDS[crowd]
    queue = Gpusched(host(devices), submitted=submitted)
    before = {task.shape: task for task in tasks}.values()
    for number, task in enumerate(task for task in before for _ in range(_RUNS_BEFORE)):
        queue.note_before(Arrival(number, task, 0.0), task.run_s * (1 + number % _RUNS_BEFORE))
    coming: list[Arrival] = arrivals(tasks, devices, 1.0, waiting + 8 * devices, seed, limits)
    for job in coming:
        queue.arrive(change(job))
    now = coming[-1].came
    for _ in range(4):
        queue.starts(now)
        queue.waiting = dict(list(queue.waiting.items())[:waiting])
    for number in list(queue.running)[:15]:
        queue.end(number, now)
        queue.starts(now)
    idle, full, after = queue.spent_s[0], statistics.median(queue.spent_s[2:4]), queue.spent_s[4:]
    found = {"idle host": idle, "full host": full, "after an end": statistics.median(after), "longest": max(after)}
    return {name: 1000 * spent_s for name, spent_s in found.items()}
