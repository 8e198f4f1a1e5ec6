"""When a waiting job starts, and what would let it start now: found out by playing the queue on, piece by piece.

In each of some futures every job ends at a time that is drawn of those that it may end at, and the scheduler decides at
each end, as it would then. Only jobs that stand before the one in question are played, and none that comes later.
"""

import heapq
import math
import time
from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from gpusched.leases.directory import leases_of_plan
from gpusched.model.job import Submission
from gpusched.model.status import JobState
from gpusched.planner.capacity import device_capacities
from gpusched.scheduling.alternatives import alternatives
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.forecast import BY_STRATA, drawn_ends
from gpusched.scheduling.group_places import NO_LIMITS, Limits
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.run_times import RunTimes
from gpusched.scheduling.scheduler import queue_order, schedule
from gpusched.settings import Settings
from gpusched.storage.job import Job

__all__ = ["MOST_AHEAD", "Outlook", "Predictions", "QueueSnapshot"]

MOST_AHEAD: Final = 200
"""With more jobs before it, a job's start is not predicted."""

_LONGEST_S: Final = 2.0
"""CPU seconds; then the futures that there are have to do."""


class Predictions(Protocol):
    """How long jobs run; see `scheduling.expectations`."""

    def expected(self, job: Job) -> RunTimes:
        """Return how long a job may run, from its start on."""

    def running(self, job: Job, now: float) -> Running:
        """Return a job that has been started as the scheduler sees it at `now` (Unix seconds)."""


class QueueSnapshot(NamedTuple):
    """What the scheduler has seen at `now` (Unix seconds): jobs that wait and that live, machines, who is blocked.

    `more`: how many members of an array come after those that wait here.
    """

    waiting: tuple[Job, ...]
    live: tuple[Job, ...]
    snapshots: Mapping[str | None, MachineSnapshot]
    blocked: Mapping[str, str]
    now: float
    limits: Limits = NO_LIMITS
    more: Mapping[str, int] = MappingProxyType({})


class Outlook:
    """What is found out of a job that waits. `starts` in Unix seconds, one for each future, math.inf for never.

    `place` counts from 1 among the jobs of its machine that may start; None: it may not. `ways` are options that would
    let it start now. It takes `longest_s` CPU seconds at the most, half of them for ways.
    """

    def __init__(
        self,
        job: Job,
        seen: QueueSnapshot,
        predictions: Predictions,
        settings: Settings,
        longest_s: float = _LONGEST_S,
    ) -> None:
        self.starts: list[float] = []
        self.ways: list[str] = []
        snapshots = {name: _by_leases_alone(snapshot, settings.headroom) for name, snapshot in seen.snapshots.items()}
        self._job, self._seen = job, seen._replace(snapshots=snapshots)
        self._predictions, self._settings = predictions, settings
        machine = job.submission.machine if job.submission else None
        possible = (one for one in seen.waiting if one.id not in seen.blocked)
        rivals = [one for one in possible if one.submission and one.submission.machine == machine]
        mine = queue_order(job)
        self._ahead = sorted((one for one in rivals if queue_order(one) < mine), key=queue_order)
        self.ahead = tuple(one.id for one in self._ahead)
        arrays = {one.array or "" for one in rivals}
        self.waiting = len(rivals) + sum(seen.more.get(array, 0) for array in arrays)
        # Members that are not listed come after those that are: behind this job where one of these is, or is this job.
        behind = {one.array or "" for one in rivals if queue_order(one) >= mine}
        unseen = sum(seen.more.get(array, 0) for array in arrays - behind)
        self._is_far = len(self._ahead) + unseen > MOST_AHEAD
        self.place = None if job.id in seen.blocked else len(self.ahead) + unseen + 1
        self._pieces = self._play() if self.place is not None else iter(())
        self._longest_s, self._spent_s = longest_s, 0.0

    def step(self) -> bool:
        """Find out one piece more, which takes as long as a pass; return whether that was all."""
        began = time.process_time()
        over = self._spent_s > self._longest_s or next(self._pieces, "over") == "over"
        self._spent_s += time.process_time() - began
        return over

    def _play(self) -> Iterator[None]:
        asked = self._job.submission
        if asked is not None and not self._starts_as(asked):
            yield
            for way in alternatives(asked, self._starts_as):
                if self._spent_s > self._longest_s / 2:  # the rest is for its start
                    break
                if way is not None:
                    self.ways.append(way)
                yield
        for future in () if self._is_far else BY_STRATA:
            self.starts.append((yield from self._start_in(future)))

    def _starts_as(self, asked: Submission) -> bool:
        """Return whether the job would start now if it asked for this."""
        waiting = (*self._ahead, replace(self._job, submission=asked))
        decision = self._decide(waiting, self._seen.live, self._seen.snapshots, self._seen.now)
        return any(start.id == self._job.id for start in decision.starts)

    def _decide(
        self,
        waiting: tuple[Job, ...],
        live: tuple[Job, ...],
        snapshots: Mapping[str | None, MachineSnapshot],
        now: float,
    ) -> Decision:
        running = [self._predictions.running(job, now) for job in live]
        seen, expected = self._seen, self._predictions.expected
        return schedule(
            waiting, running, snapshots, seen.blocked, self._settings, now, expected=expected, limits=seen.limits
        )

    def _start_in(self, future: int) -> Generator[None, None, float]:
        """Return when the job starts in one of the futures; math.inf where nothing of ours ends for it.

        It yields after each decision.
        """
        now, snapshots = self._seen.now, dict(self._seen.snapshots)
        waiting = {one.id: one for one in (*self._ahead, self._job)}
        live = {job.id: job for job in self._seen.live}
        ends = [(self._predictions.running(job, now).ends[future], job.id) for job in live.values()]
        heapq.heapify(ends)
        while True:  # something of ours ends each time, and there is only so much of that
            decision = self._decide(tuple(waiting.values()), tuple(live.values()), snapshots, now)
            yield
            for start in decision.starts:
                if start.id == self._job.id:
                    return now
                job = replace(waiting.pop(start.id), state=JobState.RUNNING, started=now)
                live[job.id] = job
                mine = (replace(lease, run_dir=job.run_dir) for lease in leases_of_plan(start.plan, job.id))
                machine = job.submission.machine if job.submission else None
                snapshots[machine] = replace(snapshots[machine], leases=(*snapshots[machine].leases, *mine))
                heapq.heappush(ends, (drawn_ends(job.id, self._predictions.expected(job), now)[future], job.id))
            for head, expected in decision.promised.items():
                waiting[head] = replace(waiting[head], promised=expected)
            if not ends:
                return math.inf
            now = max(now, ends[0][0])
            while ends and ends[0][0] <= now:
                snapshots = _without(snapshots, live.pop(heapq.heappop(ends)[1]))


def _without(snapshots: Mapping[str | None, MachineSnapshot], ended: Job) -> dict[str | None, MachineSnapshot]:
    """Return the machines without what a job had that has ended."""
    return {
        name: replace(snapshot, leases=tuple(lease for lease in snapshot.leases if lease.run_dir != ended.run_dir))
        for name, snapshot in snapshots.items()
    }


def _by_leases_alone(snapshot: MachineSnapshot, headroom: int) -> MachineSnapshot:
    """Return a machine on which jobs use nothing beside their leases: without these, what they had is free."""
    foreign = {
        capacity.device.uuid: capacity
        for capacity in device_capacities(snapshot.inventory, snapshot.leases, headroom, None)
    }
    devices = tuple(
        replace(device, memory_used_mib=capacity.foreign_mib, processes=capacity.foreign)
        if (capacity := foreign.get(device.uuid))
        else device
        for device in snapshot.inventory.devices
    )
    return replace(snapshot, inventory=replace(snapshot.inventory, devices=devices))
