"""gpusched itself: its planner and its scheduler, called as the daemon calls them."""

import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.queue_trace.trace import MILLI, Arrival, Task
from gpusched.errors import DoesNotFit
from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import Device, Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.workload import Memory, Role, Workload
from gpusched.planner import Rules, plan
from gpusched.planner.command import plan_command
from gpusched.planner.policies import policy_and_growth
from gpusched.scheduling.forecast import drawn_ends
from gpusched.scheduling.run_times import PRIOR, RunTimes, RunTimesSeen, kinds_of, left_after
from gpusched.scheduling.scheduler import MachineSnapshot, Running, Start, schedule
from gpusched.settings import Settings
from gpusched.storage.job import Job

__all__ = ["Gpusched", "LaunchPlacement", "RunPlacement", "host", "submission_of"]

_SETTINGS: Final = Settings(state_dir=Path("/-"), runtime_dir=Path("/-"), lease_dir=Path("/-"), most_jobs=100_000)
_RULES: Final = Rules(context_mib=_SETTINGS.context_mib, headroom=_SETTINGS.headroom)
_WORKLOAD: Final = Workload(name="run", roles=(Role(name="command", command=("true",)),))
_NOBODY: Final = Submission(workload=_WORKLOAD, cwd="/", environ={}, python="-", xla_variable="-")


def host(devices: int, mib: int = 16_384) -> Inventory:
    """Return a host of so many equal, idle devices."""
    cards = (Device(index=i, uuid=f"GPU-{i}", name="card", memory_total_mib=mib) for i in range(devices))
    return Inventory(host="here", source="profile", devices=tuple(cards), cpus=tuple(range(4 * devices)))


def request_of(task: Task) -> CommandRequest:
    """Return what `run --num-gpus N` or `run --fraction PART` asks for."""
    return CommandRequest(devices=task.gpus) if task.gpus else CommandRequest(fraction=task.milli * 10)


def submission_of(job: Arrival) -> Submission:
    """Return what is submitted. Jobs of one shape run the same command, unless a job's own earlier runs are known."""
    argv = (str(job.number),) if job.earlier else ("of a shape", *job.task.shape)
    workload = replace(_WORKLOAD, roles=(Role(name="command", command=argv),))
    return replace(_NOBODY, workload=workload, command=request_of(job.task), time_limit_s=job.limit_s)


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
        share = (self._inventory.devices[0].memory_total_mib or 0) * (10_000 - _RULES.headroom) // 10_000
        memory = None if task.gpus else Memory(min_mib=share * task.milli // MILLI - _RULES.context_mib)
        role = RoleRequest(name="trainer", count=1, memory=memory, devices=task.gpus or None)
        request = Request(workload="one", roles=(role,))
        try:
            found = plan(request, self._inventory, self._leases, self._rules)
        except DoesNotFit:
            return False
        self._leases += leases_of_plan(found, "job")
        return True


class Gpusched:
    """The daemon's decision at every arrival and every end. `spent_s`: the CPU time of each.

    `late_s`: how much later each job started that was once a head than it was expected then, first and at the earliest.
    """

    def __init__(self, inventory: Inventory, *, strict: bool = False, most_delay_s: float | None = None) -> None:
        self._inventory = inventory
        self._settings = replace(_SETTINGS, strict=strict)
        if most_delay_s is not None:
            self._settings = replace(self._settings, most_delay_s=most_delay_s)
        self.late_s: list[float] = []
        self._seen = RunTimesSeen()
        self._began: dict[int, tuple[Job, float]] = {}
        self._kinds: dict[str, tuple[str, ...]] = {}
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, tuple[Running, tuple[Lease, ...]]] = {}
        self.spent_s: list[float] = []

    def arrive(self, job: Arrival) -> None:
        """Take a job in."""
        asked = submission_of(job)
        for run_s in job.earlier:
            self._seen.add(kinds_of(asked), run_s)
        self.waiting[job.number] = Job(
            id=f"run-{job.number}", run_dir=f"/{job.number}", created=job.came, submission=asked
        )

    def end(self, number: int, now: float) -> None:
        """Give free what the job had."""
        del self.running[number]
        job, began = self._began.pop(number)
        self._kinds.pop(job.id, None)
        if job.submission is not None:
            self._seen.add(kinds_of(job.submission), now - began)

    def next_start(self) -> float | None:
        """Return None: it decides when something comes or ends."""
        return None

    def starts(self, now: float) -> list[int]:
        """Return what starts now."""
        leases = tuple(lease for _, mine in self.running.values() for lease in mine)
        snapshot = MachineSnapshot(inventory=self._inventory, leases=leases)
        began = time.process_time()
        decision = schedule(
            list(self.waiting.values()),
            [self._now_running(number, now) for number in self.running],
            {None: snapshot},
            {},
            self._settings,
            now,
            expected=self._expected,
        )
        self.spent_s.append(time.process_time() - began)
        for head, expected in decision.promised.items():
            self.waiting[_number(head)] = replace(self.waiting[_number(head)], promised=expected)
        for start in decision.starts:
            self._start(start, now)
        return [_number(start.id) for start in decision.starts]

    def _expected(self, job: Job) -> RunTimes:
        if job.submission is None:
            return PRIOR
        kinds = self._kinds.get(job.id)
        if kinds is None:
            kinds = self._kinds[job.id] = kinds_of(job.submission)
        return self._seen.expected(kinds, job.submission.time_limit_s)

    def _now_running(self, number: int, now: float) -> Running:
        one, _ = self.running[number]
        job, began = self._began[number]
        return replace(one, ends=drawn_ends(job.id, left_after(self._expected(job), now - began), now))

    def _start(self, start: Start, now: float) -> None:
        job = self.waiting.pop(_number(start.id))
        if job.promised is not None:
            self.late_s.append(now - job.promised)
        limit = job.submission.time_limit_s if job.submission else None
        ends_at = None if limit is None else now + limit
        mine = tuple(replace(lease, run_dir=job.run_dir) for lease in leases_of_plan(start.plan, start.id))
        running = Running(id=job.id, run_dir=job.run_dir, ends_at=ends_at)
        self.running[_number(job.id)] = running, mine
        self._began[_number(job.id)] = job, now


def _number(job: str) -> int:
    return int(job.removeprefix("run-"))
