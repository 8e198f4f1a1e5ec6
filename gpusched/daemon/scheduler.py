"""Which waiting jobs start now, and why the others wait: a pure function of a snapshot.

Jobs are taken by priority, then age. Each machine (this host, and every described one) has a queue; the number of jobs
that live at a time is one bound for all. The first job of a machine that does not fit now is its head: those behind it
start only if it does not start later for it (see `backfill`). A job that could not start however long it waited holds
up no other.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import partial
from statistics import median
from typing import Final, ParamSpec

import msgspec

from gpusched.daemon.backfill import Ends, HeadReservation, things_of
from gpusched.daemon.forecast import HeadForecast, drawn_ends
from gpusched.daemon.job import Job, Passed
from gpusched.daemon.run_times import PRIOR, RunTimes
from gpusched.daemon.wait_reasons import (
    never_line,
    no_place_left,
    place_kept,
    what_it_needs,
    when_expected,
    who_holds,
    would_delay,
)
from gpusched.errors import GpuschedError, NeverFits, UsageError
from gpusched.execution.plans import (
    chosen_devices,
    could_be_on,
    is_feasible,
    mib_lacking,
    need_of,
    needs_devices,
    on_single_devices,
    plan_for,
    ways,
)
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import Inventory
from gpusched.model.job import Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.planner.capacity import DeviceCapacity, budgets, excluded_devices
from gpusched.planner.holders import Began
from gpusched.settings import Settings

__all__ = ["Decision", "MachineSnapshot", "Running", "Start", "schedule"]

P = ParamSpec("P")

_MOST_CHECKS: Final = 1000
"""Sets of ends that are checked for one head in one pass, where replicas have one size; fewer for more sizes."""

_MOST_PLANNED: Final = 32
"""Jobs behind one head that are planned without success in one pass; after them only jobs that end in time may pass."""

_WHOLE_MIB: Final = 1 << 40

_PROBABLY: Final = 0.9
"""How probable it has to be that a head does not start later, for a job to pass it by an expectation."""

_MOST_LEFT_OUT: Final = 3
"""Devices out of order that the reason of a waiting job names."""


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as it is: its devices, and every live lease on them, of all users."""

    inventory: Inventory
    leases: tuple[Lease, ...] = ()


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A live job of this daemon. `ends_at` (Unix seconds): when its time limit is over, None without one.

    `ends`: when it may end (`drawn_ends`); empty: no idea. `passed`: the head that it passed by an expectation.
    """

    id: str
    ends_at: float | None = None
    run_dir: str = ""
    ends: tuple[float, ...] = ()
    passed: Passed | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A job that starts now, and what it gets. `passed` as of Running."""

    id: str
    plan: Plan
    passed: Passed | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What starts, in this order; why each of the others waits; and which could not start however long they waited.

    `faults` are internal errors at single jobs, which wait; the others are decided on all the same.
    """

    starts: tuple[Start, ...] = ()
    why: dict[str, str]
    never: dict[str, NeverFits]
    faults: dict[str, Exception] = {}


def schedule(
    waiting: Sequence[Job],
    running: Sequence[Running],
    grounds: Mapping[str | None, MachineSnapshot],
    blocked: Mapping[str, str],
    settings: Settings,
    now: float,
    *,
    began: Began = lambda _: None,
    expected: Callable[[Job], RunTimes] = lambda _: PRIOR,
) -> Decision:
    """Return what to do with the queue `waiting`. `grounds` has this host under None, described machines by name.

    `expected` returns how long a job may run. `blocked` are the jobs that may not start whatever is free, with the
    reason. `began` returns when a process of others began; only the named ones are asked for. `now` in Unix seconds.

    How long it takes: `python -m bench.queue_trace pass`.
    """
    one_pass = _Pass(running, grounds, settings, now, began, expected)
    for job in sorted(waiting, key=queue_order):
        if job.id in blocked:
            one_pass.why[job.id] = blocked[job.id]
        elif job.submission is not None:
            one_pass.consider(job, job.submission)
    one_pass.backfill()
    return one_pass.decision()


def amounts_by_uuid(leases: Sequence[Lease]) -> dict[str, int]:
    """Return what leases take of each device, in MiB; more than any has of a whole one."""
    found: dict[str, int] = {}
    for lease in leases:
        found[lease.device_uuid] = found.get(lease.device_uuid, 0) + (_WHOLE_MIB if lease.whole else lease.share_mib)
    return found


def queue_order(job: Job) -> tuple[int, float, str]:
    return -(job.submission.priority if job.submission else 0), job.created, job.id


class _Fit(Enum):
    NOW = "now"
    LATER = "later"


class _Machine:
    """One ground during a pass: what starts is leased at once. `ends`: see `things_of`."""

    def __init__(self, ground: MachineSnapshot, ends: dict[tuple[str, str], Ends], settings: Settings) -> None:
        self.inventory = ground.inventory
        self.leases = ground.leases
        self.head: str | None = None
        self.prospect: HeadReservation | None = None
        self.forecast: HeadForecast | None = None
        self.behind: list[tuple[Job, Submission]] = []
        self.in_vain = 0
        self._ends = ends
        self._settings = settings
        self._grounds = budgets(ground.inventory, ground.leases, settings.headroom, None)
        self._holders: dict[frozenset[str] | None, str] = {}
        self._needs: dict[Hashable, str] = {}
        self._later: dict[Hashable, str] = {}

    def devices(self, submission: Submission) -> tuple[DeviceCapacity, ...]:
        """Return the devices that the job may use, as they are now. Raises as `chosen_devices` does."""
        only = chosen_devices(submission, self.inventory)
        return tuple(budget for budget in self._grounds if only is None or budget.device.uuid in only)

    def fit(self, submission: Submission) -> _Fit | NeverFits:
        """Return whether the job fits now, or will when others end, or the error if neither. Raises HostFault."""
        try:
            grounds = self.devices(submission)
            if not needs_devices(submission) or (submission.command is None and not self.inventory.devices):
                return _Fit.NOW
            if is_feasible(submission, grounds, self._settings):
                return _Fit.NOW
            if is_feasible(submission, [budget.emptied for budget in grounds], self._settings):
                return _Fit.LATER
        except NeverFits as error:
            return error
        except UsageError as error:
            return NeverFits(error.message, error.hint)
        return self._why_never(submission, grounds)

    def plan(self, submission: Submission, avoid: frozenset[str]) -> Plan | None:
        """Return the job's plan without the devices `avoid`, or None if it does not fit there."""
        if avoid:
            grounds = [budget for budget in self.devices(submission) if budget.device.uuid not in avoid]
            if not is_feasible(submission, grounds, self._settings):
                return None
        return plan_for(submission, self.inventory, self.leases, self._settings, avoid)

    def take(self, leases: tuple[Lease, ...]) -> None:
        """Lease what a job that starts gets."""
        self.leases += leases
        self._grounds = budgets(self.inventory, self.leases, self._settings.headroom, None)

    def wait_at_head(self, job: str, submission: Submission, now: float, *, may_be_passed: bool) -> None:
        """Let a job that fits later be the head. `may_be_passed`: by what probably does not delay it."""
        grounds = [budget for budget in self.devices(submission) if could_be_on(submission, budget, self._settings)]
        single, number = on_single_devices(submission)
        self.head = job
        self.prospect = HeadReservation(
            grounds,
            things_of(grounds, self.leases, self._ends),
            lambda after: is_feasible(single, after, self._settings),
            _MOST_CHECKS // ways(submission),
            number,
        )
        if may_be_passed and number is not None:
            lacking = partial(mib_lacking, submission, settings=self._settings)
            self.forecast = HeadForecast(self.prospect.waits(lacking), number, now)

    def why_later(self, submission: Submission, began: Began, now: float) -> str:
        """Return what the job needs, who holds the devices that it may use, and which of them take nothing."""
        need = need_of(submission)
        if need not in self._later:
            self._later[need] = "; ".join(
                filter(None, (self.what_it_needs(submission), self._held(submission, began, now)))
            )
        return self._later[need]

    def _held(self, submission: Submission, began: Began, now: float) -> str:
        only = chosen_devices(submission, self.inventory)
        if only not in self._holders:
            holders = who_holds(self.devices(submission), self.leases, began, now)
            excluded = excluded_devices(self.inventory, only)[:_MOST_LEFT_OUT]
            self._holders[only] = "; ".join(filter(None, (holders, *excluded)))
        return self._holders[only]

    def what_it_needs(self, submission: Submission) -> str:
        """Return what the job needs, in numbers."""
        need = need_of(submission)
        if need not in self._needs:
            self._needs[need] = what_it_needs(submission, self.devices(submission), self._settings.context_mib)
        return self._needs[need]

    def _why_never(self, submission: Submission, grounds: Sequence[DeviceCapacity]) -> NeverFits:
        excluded = excluded_devices(self.inventory, chosen_devices(submission, self.inventory))
        line = never_line(submission, grounds, excluded, self._settings.context_mib)
        return NeverFits(line, "mend or undrain the device, or stop the job and ask for less")


class _Pass:
    """One pass over the queue, job by job."""

    def __init__(
        self,
        running: Sequence[Running],
        grounds: Mapping[str | None, MachineSnapshot],
        settings: Settings,
        now: float,
        began: Began,
        expected: Callable[[Job], RunTimes],
    ) -> None:
        self.why: dict[str, str] = {}
        self._ends = {(job.id, job.run_dir): Ends(job.ends_at, job.ends) for job in running}
        self._overruns = Counter(job.passed.head for job in running if job.passed and job.passed.by < now)
        self._expected = expected
        self._machines = {name: _Machine(ground, self._ends, settings) for name, ground in grounds.items()}
        self._settings = settings
        self._now = now
        self._began = began
        self._live = len(running)
        self._starts: list[Start] = []
        self._never: dict[str, NeverFits] = {}
        self._later: list[tuple[str, Submission]] = []
        self._faults: dict[str, Exception] = {}
        self._answers: dict[Hashable, _Fit | NeverFits] = {}
        self._in_vain: set[Hashable] = set()

    def consider(self, job: Job, submission: Submission) -> None:
        """Start the job, or note why it waits."""
        machine = self._machines.get(submission.machine)
        if machine is None:
            self.why[job.id] = f"machine {submission.machine} cannot be read now"
        elif self._live >= self._settings.most_jobs:
            self.why[job.id] = no_place_left(self._live, self._settings.most_jobs)
        elif machine.head is not None and needs_devices(submission):
            machine.behind.append((job, submission))
        else:
            self._contain(job.id, self._decide, job, submission, machine)

    def backfill(self) -> None:
        """Decide on the jobs behind each head: of one priority those first that are expected to take least time."""
        for machine in self._machines.values():
            fitting: list[tuple[Job, Submission]] = []
            for job, submission in machine.behind:
                self._contain(job.id, self._note_fit, job, submission, machine, fitting)
            if not self._settings.strict:
                fitting.sort(key=lambda one: (-one[1].priority, median(self._expected(one[0])), *queue_order(one[0])))
            for job, submission in fitting:
                self._contain(job.id, self._decide, job, submission, machine)

    def _note_fit(
        self, job: Job, submission: Submission, machine: _Machine, fitting: list[tuple[Job, Submission]]
    ) -> None:
        if self._fit(submission, machine) is _Fit.NOW:
            fitting.append((job, submission))
        else:
            self._decide(job, submission, machine)

    def _fit(self, submission: Submission, machine: _Machine) -> _Fit | NeverFits:
        need = need_of(submission)
        answer = self._answers.get(need)
        if answer is None:
            answer = machine.fit(submission)
            if answer is not _Fit.NOW:  # leases only grow in a pass, so that this holds for the rest of it
                self._answers[need] = answer
        return answer

    def decision(self) -> Decision:
        """Return what was decided. Reasons to wait come last, so that the jobs that start now are named as holders."""
        for job, submission in self._later:
            self._contain(job, self._explain, job, submission)
        return Decision(starts=tuple(self._starts), why=self.why, never=self._never, faults=self._faults)

    def _contain(self, job: str, step: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Let a job wait that cannot be decided on; an internal error is at fault for no other job."""
        try:
            step(*arguments, **named)
        except GpuschedError as error:
            self.why[job] = error.message
        except Exception as error:  # noqa: BLE001 (the next job is decided on all the same)
            self._faults[job] = error

    def _explain(self, job: str, submission: Submission) -> None:
        machine = self._machines[submission.machine]
        self.why[job] = machine.why_later(submission, self._began, self._now)
        if job == machine.head and machine.forecast is not None:
            expected = when_expected(machine.forecast.starts, self._now)
            self.why[job] = "; ".join(filter(None, (self.why[job], expected)))

    def _decide(self, job: Job, submission: Submission, machine: _Machine) -> None:
        answer = self._fit(submission, machine)
        if isinstance(answer, NeverFits):
            self._never[job.id] = answer
            self.why[job.id] = answer.message
        elif answer is _Fit.LATER:
            if machine.head is None:
                overruns = job.overruns + self._overruns[job.id]
                may_be_passed = not self._settings.strict and overruns < self._settings.most_overruns
                machine.wait_at_head(job.id, submission, self._now, may_be_passed=may_be_passed)
            self._later.append((job.id, submission))
        elif self._live + 1 + self._places_kept() > self._settings.most_jobs:
            self.why[job.id] = place_kept(self._first_head(), self._settings.most_jobs)
        elif machine.prospect is None or not needs_devices(submission):
            self._start(job, machine, plan_for(submission, machine.inventory, machine.leases, self._settings))
        else:
            self._pass_by(job, submission, machine, machine.prospect)

    def _pass_by(self, job: Job, submission: Submission, machine: _Machine, prospect: HeadReservation) -> None:
        """Start a job that fits behind the head if the head does not start later for it, or probably does not."""
        limit, most = submission.time_limit_s, self._may_last(submission, prospect)
        in_time = limit is not None and most is not None and limit <= most
        forecast, run_times = machine.forecast, self._expected(job)
        probably = forecast is not None and forecast.in_time(run_times) >= _PROBABLY
        need = need_of(submission)
        if in_time or probably or (need not in self._in_vain and machine.in_vain < _MOST_PLANNED):
            for avoid in (frozenset[str](), prospect.devices):
                plan = machine.plan(submission, avoid)
                if plan is None:
                    break
                leases = leases_of_plan(plan, job.id)
                if in_time or prospect.never_delays_head(leases):
                    self._start(job, machine, plan)
                    return
                amounts = amounts_by_uuid(leases)
                if forecast is not None and forecast.undelayed(amounts, run_times) >= _PROBABLY:
                    must_end = forecast.beside(amounts) < _PROBABLY
                    passed = Passed(head=machine.head or "", by=forecast.expected) if must_end else None
                    self._start(job, machine, plan, passed)
                    return
            machine.in_vain += 1
            self._in_vain.add(need)
        self.why[job.id] = would_delay(machine.what_it_needs(submission), machine.head or "", most)

    def _may_last(self, submission: Submission, prospect: HeadReservation) -> float | None:
        """Return how many seconds the job may run to be gone, however slowly it stops, when the head starts at last."""
        by = prospect.shadow_time
        return None if by is None else by - self._now - submission.workload.stop_grace_s

    def _start(self, job: Job, machine: _Machine, plan: Plan, passed: Passed | None = None) -> None:
        leases = leases_of_plan(plan, job.id)
        limit = job.submission.time_limit_s if job.submission else None
        run_times = self._expected(job)
        ends = Ends(None if limit is None else self._now + limit, drawn_ends(job.id, run_times, self._now))
        machine.take(leases)
        if machine.prospect is not None:
            machine.prospect.admit(leases, ends)
        if machine.forecast is not None:
            machine.forecast.admit(amounts_by_uuid(leases), ends.ends)
        self._ends[job.id, ""] = ends
        self._starts.append(Start(id=job.id, plan=plan, passed=passed))
        self._live += 1

    def _places_kept(self) -> int:
        """Return how many heads may start without the end of a job of ours: each must find a place among the live."""
        heads = [machine.prospect for machine in self._machines.values() if machine.prospect is not None]
        if self._live + 1 + len(heads) <= self._settings.most_jobs:
            return 0
        return sum(prospect.waits_for_others_only() for prospect in heads)

    def _first_head(self) -> str:
        return next((machine.head for machine in self._machines.values() if machine.head), "")
