"""Which waiting jobs start now, and why the others wait: a pure function of a snapshot.

Jobs are taken by priority, then age. Each machine (this host, and every described one) has a queue; the number of jobs
that live at a time is one bound for all, and groups and arrays may have bounds of their own. The first job of a machine
that does not fit now is its head: those behind it start only if they are expected to be over in time (`_SURETY`) or to
delay it by little (`_SLACK`), or if a proof or their time limit shows that they do not (see `backfill`). A job that
never could start holds up no other.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Final, ParamSpec

from gpusched.errors import GpuschedError, NeverFits
from gpusched.execution.plans import need_of, needs_devices
from gpusched.leases.directory import leases_of_plan
from gpusched.model.job import Submission
from gpusched.model.plan import Plan
from gpusched.scheduling.backfill import Ends, HeadReservation
from gpusched.scheduling.decision import Decision, Running, Start
from gpusched.scheduling.forecast import drawn_ends
from gpusched.scheduling.group_places import NO_LIMITS, Bound, GroupPlaces, Limits
from gpusched.scheduling.machine import Fit, Machine, MachineSnapshot
from gpusched.scheduling.run_times import PRIOR, RunTimes, middle_of
from gpusched.scheduling.wait_reasons import no_place_left, place_kept, when_expected, would_delay
from gpusched.settings import Settings
from gpusched.storage.job import Job

__all__ = ["queue_order", "schedule"]

P = ParamSpec("P")

_BY_AGE: Final = attrgetter("created", "id")

_MOST_PLANNED: Final = 32
"""Jobs behind one head that are tried without success in one pass; after them only jobs that end in time may pass."""

_EARLIER_S: Final = 60.0
"""By how much earlier a head has to be expected than before, for that to be written down."""

_SURETY: Final = 0.5
"""How probably a job has to end before a head starts that is not late yet, to pass it. It rises to 1 in most_delay."""

_SLACK: Final = 0.1
"""By what part of its own run time a head may be expected later for a job that passes it; most_delay at most.

That is the time that it will exceed in three of four cases: a head of which little is known is delayed by less. It is
the slack of Talby and Feitelson, IPPS 1999, with a prediction in the place of a user's estimate (decision 30).
"""


def schedule(
    waiting: Sequence[Job],
    running: Sequence[Running],
    snapshots: Mapping[str | None, MachineSnapshot],
    blocked: Mapping[str, str],
    settings: Settings,
    now: float,
    *,
    expected: Callable[[Job], RunTimes] = lambda _: PRIOR,
    limits: Limits = NO_LIMITS,
) -> Decision:
    """Return what to do with the queue `waiting`. `snapshots` has this host under None, described machines by name.

    `expected` returns how long a job may run. `blocked` are the jobs that may not start whatever is free, with the
    reason. `now` in Unix seconds.
    `python -m bench.queue_trace pass` shows how long it takes.
    """
    one_pass = _Pass(running, snapshots, settings, now, expected, GroupPlaces(limits, running))
    levels: dict[int, list[Job]] = {}
    for job in waiting:
        levels.setdefault(_priority(job), []).append(job)
    for priority in sorted(levels, reverse=True):
        for job in sorted(levels[priority], key=_BY_AGE):
            if job.id in blocked:
                one_pass.why[job.id] = blocked[job.id]
            elif job.submission is not None:
                one_pass.consider(job, job.submission)
        one_pass.backfill()
    return one_pass.decision()


def queue_order(job: Job) -> tuple[int, float, str]:
    """Return by what waiting jobs are sorted: priority, the highest first, then age."""
    return -_priority(job), job.created, job.id


def _priority(job: Job) -> int:
    return job.submission.priority if job.submission else 0


class _Need:
    """What is found of all jobs that need the same. `later`: that it does not fit now, which holds for a pass.

    `fits_beside`: the number of leases beside which it fits. `on_device`: whether they need any device.
    """

    __slots__ = ("fits_beside", "later", "on_device", "plan_failed", "why")

    def __init__(self, submission: Submission) -> None:
        self.on_device = needs_devices(submission)
        self.later: Fit | NeverFits | None = None
        self.fits_beside = -1
        self.plan_failed = False
        self.why = ""


class _Pass:
    """One pass over the queue, job by job."""

    def __init__(
        self,
        running: Sequence[Running],
        snapshots: Mapping[str | None, MachineSnapshot],
        settings: Settings,
        now: float,
        expected: Callable[[Job], RunTimes],
        places: GroupPlaces,
    ) -> None:
        self.why: dict[str, str] = {}
        self._ends = {(job.id, job.run_dir): Ends(job.ends_at, job.ends) for job in running}
        self._promised: dict[str, float] = {}
        self._expected = expected
        self._machines = {name: Machine(snapshot, self._ends, settings) for name, snapshot in snapshots.items()}
        self._behind: defaultdict[str | None, list[tuple[Job, Submission, _Need]]] = defaultdict(list)
        self._settings = settings
        self._now = now
        self._live = len(running)
        self._places = places
        self._starts: list[Start] = []
        self._never: dict[str, NeverFits] = {}
        self._later: list[tuple[str, Submission, _Need]] = []
        self._faults: dict[str, Exception] = {}
        self._needs: dict[Hashable, _Need] = {}

    def consider(self, job: Job, submission: Submission) -> None:
        """Start the job, or note why it waits."""
        machine = self._machines.get(submission.machine)
        if machine is None:
            self.why[job.id] = f"machine {submission.machine} cannot be read now"
        elif self._live >= self._settings.most_jobs:
            self.why[job.id] = no_place_left(self._live, self._settings.most_jobs)
        elif (full := self._places.full(self._bounds(job, submission))) is not None:
            self.why[job.id] = full
            machine.turns_come_first |= machine.head is None
        else:
            need = self._need(submission)
            if machine.head is not None and not self._settings.strict and need.on_device:
                self._behind[submission.machine].append((job, submission, need))
            else:
                self._contain(job.id, self._decide, job, submission, need, machine)

    def backfill(self) -> None:
        """Decide on the jobs of one priority behind each head: first on those that are expected to take least time."""
        for name, machine in sorted(self._machines.items(), key=lambda item: item[0] or ""):
            fitting: list[tuple[float, Job, Submission, _Need]] = []
            for job, submission, need in self._behind.pop(name, ()):
                if need.later is Fit.LATER and not self._bounds(job, submission):  # as _decide would
                    self._later.append((job.id, submission, need))
                else:
                    self._contain(job.id, self._note_fit, job, submission, need, machine, fitting)
            for _, job, submission, need in sorted(fitting, key=itemgetter(0)):
                self._contain(job.id, self._decide, job, submission, need, machine)

    def _note_fit(
        self,
        job: Job,
        submission: Submission,
        need: _Need,
        machine: Machine,
        fitting: list[tuple[float, Job, Submission, _Need]],
    ) -> None:
        if self._fit(submission, need, machine) is Fit.NOW:
            fitting.append((middle_of(self._expected(job)), job, submission, need))
        else:
            self._decide(job, submission, need, machine)

    def _need(self, submission: Submission) -> _Need:
        key = need_of(submission)
        need = self._needs.get(key)
        if need is None:
            need = self._needs[key] = _Need(submission)
        return need

    def _fit(self, submission: Submission, need: _Need, machine: Machine) -> Fit | NeverFits:
        if need.later is not None:
            return need.later
        if need.fits_beside == len(machine.leases):
            return Fit.NOW
        answer = machine.fit(submission)
        if answer is Fit.NOW:
            need.fits_beside = len(machine.leases)
        else:  # leases only grow in a pass, so that this holds for the rest of it
            need.later = answer
        return answer

    def decision(self) -> Decision:
        """Return what was decided. Reasons to wait come last, so that the jobs that start now are named as holders."""
        for job, submission, need in self._later:
            if not need.why:
                self._contain(job, self._explain, submission, need)
            if need.why:
                self.why[job] = need.why
        for machine in self._machines.values():
            if machine.head is not None and machine.forecast is not None and not machine.turns_come_first:
                expected = when_expected(machine.forecast.starts, self._now)
                if why := "; ".join(filter(None, (self.why.get(machine.head), expected))):
                    self.why[machine.head] = why
        return Decision(
            starts=tuple(self._starts),
            why=self.why,
            never=self._never,
            promised=self._promised,
            faults=self._faults,
        )

    def _contain(self, job: str, step: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Let a job wait that cannot be decided on; an internal error is at fault for no other job."""
        try:
            step(*arguments, **named)
        except GpuschedError as error:
            self.why[job] = error.message
        except Exception as error:  # noqa: BLE001 (the next job is decided on all the same)
            self._faults[job] = error

    def _explain(self, submission: Submission, need: _Need) -> None:
        need.why = self._machines[submission.machine].why_later(submission, self._now)

    def _decide(self, job: Job, submission: Submission, need: _Need, machine: Machine) -> None:
        answer = self._fit(submission, need, machine)
        bounds = self._bounds(job, submission)
        passing = machine.head if need.on_device else None
        no_place = self._places.full(bounds) or self._places.kept(bounds, passing)
        if isinstance(answer, NeverFits):
            self._never[job.id] = answer
            self.why[job.id] = answer.message
        elif no_place is not None:
            self.why[job.id] = no_place
        elif answer is Fit.LATER:
            if machine.head is None:
                self._places.keep(bounds, job.id)
                machine.wait_at_head(job.id, submission, self._now, self._surety(job))
                if machine.forecast is not None:
                    machine.latest = self._latest(job, machine.forecast.expected)
                    if not machine.turns_come_first:  # else it is the turn of others when this one would have room
                        self._promise(job, machine.forecast.expected)
            self._later.append((job.id, submission, need))
        elif self._live >= self._settings.most_jobs:
            self.why[job.id] = no_place_left(self._live, self._settings.most_jobs)
        elif self._live + 1 + self._places_kept() > self._settings.most_jobs:
            self.why[job.id] = place_kept(self._first_head(), self._settings.most_jobs)
        elif machine.reservation is None or not need.on_device:
            self._start(job, machine, machine.plan(submission))
        else:
            self._pass_by(job, submission, need, machine, machine.reservation)

    def _surety(self, job: Job) -> float:
        """Return how probably a job has to end before this head starts, to pass it; infinity: no expectation counts."""
        if self._settings.strict:
            return math.inf
        late_s = 0.0 if job.promised is None else max(0.0, self._now - job.promised)
        if late_s > self._settings.most_delay_s:
            return math.inf
        return _SURETY + (1 - _SURETY) * (late_s / self._settings.most_delay_s if late_s else 0.0)

    def _latest(self, job: Job, expected: float) -> float:
        """Return until when a head may be expected at the latest beside a job that passes it (Unix seconds)."""
        earliest = expected if job.promised is None else min(expected, job.promised)
        run_times = self._expected(job)
        return earliest + min(_SLACK * run_times[len(run_times) // 4], self._settings.most_delay_s)

    def _promise(self, job: Job, expected: float) -> None:
        """Note when a head is expected, if it never was before or was so later: the bound counts from the earliest."""
        if expected < (math.inf if job.promised is None else job.promised - _EARLIER_S):
            self._promised[job.id] = expected

    def _pass_by(
        self, job: Job, submission: Submission, need: _Need, machine: Machine, reservation: HeadReservation
    ) -> None:
        """Start a job that fits behind the head if that is expected little later, or by a proof or its limit no later.

        The proof is about devices alone: where it takes the head's place in their group or array, only time counts.
        """
        limit, most = submission.time_limit_s, self._may_last(submission, reservation)
        in_time = limit is not None and most is not None and limit <= most
        forecast, run_times = machine.forecast, self._expected(job)
        probably = forecast is not None and forecast.in_time(run_times) >= machine.surety
        provable = (
            not (need.plan_failed or self._places.kept(self._bounds(job, submission)))
            and machine.failures < _MOST_PLANNED
        )
        if in_time or probably or provable:
            for avoid in (frozenset[str](), reservation.devices):
                found = machine.leases_without(submission, avoid, job.id)
                if found is None:
                    break
                leases, plan = found
                delays_little = machine.delays_little(leases, drawn_ends(job.id, run_times, self._now))
                if in_time or probably or delays_little or reservation.never_delays_head(leases):
                    self._start(job, machine, plan or machine.plan(submission, avoid))
                    return
            machine.failures += 1
            need.plan_failed = True
        self.why[job.id] = would_delay(machine.what_it_needs(submission), machine.head or "", most)

    def _may_last(self, submission: Submission, reservation: HeadReservation) -> float | None:
        """Return how many seconds the job may run to be gone, however slowly it stops, when the head starts at last.

        None where limits do not set that.
        """
        by = reservation.shadow_time
        return None if by is None else by - self._now - submission.workload.stop_grace_s

    def _start(self, job: Job, machine: Machine, plan: Plan) -> None:
        leases = leases_of_plan(plan, job.id)
        limit = job.submission.time_limit_s if job.submission else None
        run_times = self._expected(job)
        ends = Ends(None if limit is None else self._now + limit, drawn_ends(job.id, run_times, self._now))
        machine.take(leases)
        if job.submission is not None:
            self._places.take(self._bounds(job, job.submission))
        if machine.reservation is not None:
            machine.reservation.admit(leases, ends)
            if machine.forecast is not None:
                machine.forecast.admit(machine.reservation.amounts(leases), ends.ends)
        self._ends[job.id, ""] = ends
        self._starts.append(Start(id=job.id, plan=plan))
        self._live += 1

    def _bounds(self, job: Job, submission: Submission) -> tuple[Bound, ...]:
        return self._places.bounds(submission.group, job.array)

    def _places_kept(self) -> int:
        """Return how many heads may start without the end of a job of ours: each must find a place among the live."""
        heads = [one.reservation for one in self._machines.values() if one.reservation is not None]
        if self._live + 1 + len(heads) <= self._settings.most_jobs:
            return 0
        return sum(reservation.waits_for_others_only() for reservation in heads)

    def _first_head(self) -> str:
        return next((machine.head for machine in self._machines.values() if machine.head), "")
