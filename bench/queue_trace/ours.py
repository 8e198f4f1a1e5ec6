"""gpusched itself: its planner and its scheduler, called as the daemon calls them."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.queue_trace.trace import MILLI, Arrival, Task
from gpusched.errors import DoesNotFit
from gpusched.execution.plans import is_feasible
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import Device, Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.status import JobState
from gpusched.model.workload import Memory, Role, Workload
from gpusched.planner import Rules, plan
from gpusched.planner.capacity import device_capacities
from gpusched.planner.command import plan_command
from gpusched.planner.policies import policy_and_growth
from gpusched.scheduling.decision import Start
from gpusched.scheduling.expectations import Expectations
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.outlook import Outlook, QueueSnapshot
from gpusched.scheduling.scheduler import schedule
from gpusched.settings import Settings
from gpusched.storage.job import Job

__all__ = ["Gpusched", "LaunchPlacement", "RunPlacement", "host", "launch_of", "submission_of"]

_SETTINGS: Final = Settings(state_dir=Path("/-"), runtime_dir=Path("/-"), lease_dir=Path("/-"), most_jobs=100_000)
_RULES: Final = Rules(context_mib=_SETTINGS.context_mib, headroom=_SETTINGS.headroom)
_WORKLOAD: Final = Workload(name="run", roles=(Role(name="command", command=("true",)),))
_MIB: Final = 16_384
_NOBODY: Final = Submission(workload=_WORKLOAD, cwd="/", environ={}, python="-", xla_variable="-")


def host(devices: int, mib: int = _MIB) -> Inventory:
    """Return a host of so many equal, idle devices."""
    cards = (Device(index=i, uuid=f"GPU-{i}", name="card", memory_total_mib=mib) for i in range(devices))
    return Inventory(host="here", source="profile", devices=tuple(cards), cpus=tuple(range(4 * devices)))


def request_of(task: Task) -> CommandRequest:
    """Return what `run --num-gpus N` or `run --fraction PART` asks for."""
    return CommandRequest(devices=task.gpus) if task.gpus else CommandRequest(fraction=task.milli * 10)


def submission_of(job: Arrival) -> Submission:
    """Return what is submitted. Jobs of one shape run the same command, unless commands are told apart."""
    argv = ("of a shape", *job.task.shape) if job.earlier is None else (str(job.number),)
    workload = replace(_WORKLOAD, roles=(Role(name="command", command=argv),))
    return replace(_NOBODY, workload=workload, command=request_of(job.task), time_limit_s=job.limit_s)


def launch_of(job: Arrival, mib: int = _MIB) -> Submission:
    """Return the same as a `launch -d` of one process: what it needs is its role's."""
    workload = replace(_WORKLOAD, name="one", roles=(Role(name="trainer", command=("true",)),))
    options = repr(job.task.shape if job.earlier is None else job.number)
    return replace(
        _NOBODY,
        workload=workload,
        options=options,
        request=_launch_request(job.task, mib),
        grow=False,
        time_limit_s=job.limit_s,
    )


def _launch_request(task: Task, mib: int) -> Request:
    share = mib * (10_000 - _RULES.headroom) // 10_000
    memory = None if task.gpus else Memory(min_mib=share * task.milli // MILLI - _RULES.context_mib)
    role = RoleRequest(name="trainer", count=1, memory=memory, devices=task.gpus or None)
    return Request(workload="one", roles=(role,))


class RunPlacement:
    """A host on which `run` places tasks that never end."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._leases: list[Lease] = []

    def place(self, task: Task) -> bool:
        """Return whether the task had a place."""
        try:
            found = plan_command(request_of(task), self._inventory, self._leases, _RULES, "run")
        except DoesNotFit:
            return False
        self._leases += leases_of_plan(found, "job")
        return True


class LaunchPlacement:
    """A host on which `launch` places workloads of one process; the task's share is its minimum."""

    def __init__(self, inventory: Inventory, policy: str | None, *, grow: bool) -> None:
        self._inventory = inventory
        policy, grow = policy_and_growth(policy, grow)
        self._rules = replace(_RULES, policy=policy, grow=grow)
        self._leases: list[Lease] = []

    def place(self, task: Task) -> bool:
        """Return whether the task had a place."""
        request = _launch_request(task, self._inventory.devices[0].memory_total_mib or 0)
        try:
            found = plan(request, self._inventory, self._leases, self._rules)
        except DoesNotFit:
            return False
        self._leases += leases_of_plan(found, "job")
        return True


class Gpusched:
    """The daemon's decision at every arrival and every end, and every `pass_every_s` while a job waits.

    `spent_s`: the CPU time of each decision. `late_s`: how much later each job started that was once a head than it was
    expected then, at the earliest. `beyond_s`: of the heads that were late by more than most_delay, how much later each
    started than what ran when it became so had left room for it.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        strict: bool = False,
        most_delay_s: float | None = None,
        pass_every_s: float | None = None,
        submitted: Callable[[Arrival], Submission] = submission_of,
    ) -> None:
        self._inventory = inventory
        self._submitted = submitted
        self.settings = replace(_SETTINGS, strict=strict)
        if most_delay_s is not None:
            self.settings = replace(self.settings, most_delay_s=most_delay_s)
        self._pass_every_s = pass_every_s
        self._passed = 0.0
        self.late_s: list[float] = []
        self.beyond_s: list[float] = []
        self.spent_s: list[float] = []
        self.live: dict[str, Job] = {}
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, tuple[Job, tuple[Lease, ...]]] = {}
        self._runs_s: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._bounds: dict[int, float] = {}
        self.expectations = Expectations(self)

    def ended(self, limit: int, /, *, members: bool = False) -> Sequence[Job]:
        """Return no jobs: nothing has run before."""
        del limit, members
        return ()

    def arrive(self, job: Arrival) -> None:
        """Take a job in."""
        taken = self._job(job)
        for run_s in job.earlier or ():
            self.note_before(job, run_s)
        self.waiting[job.number] = self.live[taken.id] = taken
        self._runs_s[job.number] = job.task.run_s

    def end(self, number: int, now: float) -> None:
        """Give free what the job had."""
        job, _ = self.running.pop(number)
        del self.live[job.id]
        self._note_end(job, now)
        self.expectations.forget(job.id)

    def next_start(self) -> float | None:
        """Return when the next pass is due if nothing comes or ends before; None where no pass could start anything."""
        due = self._passed + self._pass_every_s if self._pass_every_s else None
        return due if self.waiting and self.running else None

    def starts(self, now: float) -> list[int]:
        """Return what starts now. Where nothing waits there is nothing to decide, as in the daemon."""
        if not self.waiting:
            return []
        self._note_bounds(now)
        self._passed, began = now, time.process_time()
        seen = self.snapshot(now)
        decision = schedule(
            seen.waiting,
            [self.expectations.running(job, now) for job in seen.live],
            seen.snapshots,
            {},
            self.settings,
            now,
            expected=self.expectations.expected,
        )
        self.spent_s.append(time.process_time() - began)
        for head, expected in decision.promised.items():
            self.waiting[_number(head)] = replace(self.waiting[_number(head)], promised=expected)
        for start in decision.starts:
            self._start(start, now)
        return [_number(start.id) for start in decision.starts]

    def snapshot(self, now: float) -> QueueSnapshot:
        """Return what the scheduler sees."""
        leases = tuple(lease for _, mine in self.running.values() for lease in mine)
        snapshots: dict[str | None, MachineSnapshot] = {None: MachineSnapshot(inventory=self._inventory, leases=leases)}
        live = tuple(job for job, _ in self.running.values())
        return QueueSnapshot(tuple(self.waiting.values()), live, snapshots, {}, now)

    def outlook(self, number: int, now: float) -> Outlook:
        """Return what `gpusched why` finds out of a waiting job, however long that takes."""
        found = Outlook(self.waiting[number], self.snapshot(now), self.expectations, self.settings, math.inf)
        while not found.step():
            pass
        return found

    def note_before(self, job: Arrival, run_s: float) -> None:
        """Note that such a job ran before, for so long."""
        self._note_end(replace(self._job(job), started=0.0), run_s)

    def _note_end(self, job: Job, now: float) -> None:
        self.expectations.note_end(replace(job, state=JobState.SUCCEEDED, ended=now))

    def _note_bounds(self, now: float) -> None:
        """Note of each job that is late by more than most_delay when it has room as what runs now ends, at the latest.

        That is by its limit, where one is typed: as in all queues of the bench, of all jobs or of none.
        """
        for number, job in self.waiting.items():
            late = job.promised is not None and now - job.promised > self.settings.most_delay_s
            if late and number not in self._bounds and job.submission is not None:
                self._bounds[number] = self._has_room_at(job.submission, now)

    def _has_room_at(self, asked: Submission, now: float) -> float:
        left = dict(self.running)
        moments = [now, *sorted(self._ends[number] for number in left)]
        for moment in moments:
            left = {number: held for number, held in left.items() if self._ends[number] > moment}
            leases = [lease for _, mine in left.values() for lease in mine]
            free = device_capacities(self._inventory, leases, self.settings.headroom, None)
            if is_feasible(asked, free, self.settings):
                return moment
        raise AssertionError(f"{asked.typed} never fits")

    def _start(self, start: Start, now: float) -> None:
        number = _number(start.id)
        job = replace(self.waiting.pop(number), state=JobState.RUNNING, started=now)
        if job.promised is not None:
            self.late_s.append(now - job.promised)
        if number in self._bounds:
            self.beyond_s.append(now - self._bounds[number])
        mine = tuple(replace(lease, run_dir=job.run_dir) for lease in leases_of_plan(start.plan, start.id))
        self.running[number] = job, mine
        limit_s = None if job.submission is None else job.submission.time_limit_s
        self._ends[number] = now + (self._runs_s[number] if limit_s is None else limit_s)

    def _job(self, job: Arrival) -> Job:
        return Job(id=f"run-{job.number}", run_dir=f"/{job.number}", created=job.came, submission=self._submitted(job))


def _number(job: str) -> int:
    return int(job.removeprefix("run-"))
