"""The queue: which jobs may start at all, which of them do, and why the others wait.

Devices are read before the lease directory is locked, so that a driver that hangs keeps no other user from planning.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from msgspec.structs import replace

from gpusched.daemon.arrays import at_most, made, may_start, offered
from gpusched.daemon.groups import limits_of, why_paused
from gpusched.daemon.lifecycle import begin, launcher_exited
from gpusched.daemon.state import A_FLOOD, DaemonState
from gpusched.daemon.stopping import stop_job
from gpusched.errors import GpuschedError, HostFault
from gpusched.execution.lease_usage import current_leases, with_known
from gpusched.execution.plans import needs_devices
from gpusched.leases.directory import LeaseDirectory, leases_of_plan
from gpusched.linux.processes import began
from gpusched.model.device import Inventory
from gpusched.model.job import Submission
from gpusched.model.status import ENDED, JOB_TERMINAL, JobState
from gpusched.probe.base import require_usable
from gpusched.scheduling.decision import Decision, Running, Start
from gpusched.scheduling.group_places import Limits
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.outlook import QueueSnapshot
from gpusched.scheduling.scheduler import schedule
from gpusched.scheduling.wait_reasons import waits_for
from gpusched.storage.job import Job

__all__ = ["Queue"]

_LOG: Final = logging.getLogger(__name__)
_FRESH_S: Final = 1.0
_PASS_EVERY_S: Final = 2.0
_LOCKED_AGAIN_S: Final = 0.1
_REST: Final = 4  # times as long as the decision took, so that a long queue leaves the daemon time for its clients
_STARTING_PER_CPU: Final = 2  # more of them start no sooner, and a command such as ps waits longer beside them
_LONGEST_WRITING_S: Final = 0.25  # a slow disk must not keep clients waiting; the others have the next pass
_TRY_AGAIN_S: Final = 5.0
_OFFERED: Final = 64  # members of arrays in one pass: few more can be starting at the same time
_FLOOD_S: Final = 0.25
_LONGEST_FLOOD_S: Final = 5.0
_BLOCKED, _DECISION, _PREPARATION = "the conditions", "the plan", "the start"


class Queue:
    """Runs a pass over the queue after a change, and every two seconds while a job waits. Times are monotonic."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._next = self._rested = 0.0
        self._awaits_reading = False
        self._flooded_since: float | None = None
        self._cpus = len(os.sched_getaffinity(0))

    def due(self) -> float | None:
        """Return when the next pass is due, None while no job waits."""
        if self._awaits_reading or next(self._queued(), None) is None:
            return None
        return self._rested if self._state.queue_changed else max(self._rested, self._next)

    def run_pass(self, now: float) -> None:
        """Prepare the jobs whose turn has come; they are spawned once that is saved."""
        due = self.due()
        if not self._awaits_reading and due is None:  # no job waits
            self._state.queue_seen = None
            return
        if due is not None and now < due:
            return
        queued = list(self._queued())
        if not queued or self._is_stalled(now) or self._is_flooded(now):
            self._awaits_reading = False
            return
        host = None
        if any(_on_this_host(job) for job in queued):
            host = self._state.devices.fresh(now, _FRESH_S)
            self._awaits_reading = host is None
            if host is None:  # the reading that has begun wakes us
                return
        self._state.queue_changed = False
        self._next = now + _PASS_EVERY_S
        try:
            decided = self._decide(queued, host, now)
        except HostFault as error:
            self._state.why.update({job.id: str(error) for job in queued})
            self._state.queue_seen = None
            self._next = now + _LOCKED_AGAIN_S
            decided = time.monotonic()
        self._rested = time.monotonic() + min(_PASS_EVERY_S, _REST * (decided - now))

    def _is_stalled(self, now: float) -> bool:
        """Return whether nothing may start because it could not be written down."""
        if self._state.jobs.problem is None:
            return False
        self._rested = now + _PASS_EVERY_S
        return True

    def _is_flooded(self, now: float) -> bool:
        """Return whether jobs come in so fast that starting them would hold up those behind; for a while only."""
        arrivals = self._state.arrivals
        if len(arrivals) < A_FLOOD or now - arrivals[0] > _FLOOD_S:
            self._flooded_since = None
            return False
        if self._flooded_since is None:
            self._flooded_since = now
        self._rested = now + _FLOOD_S
        return now - self._flooded_since < _LONGEST_FLOOD_S

    def _queued(self) -> Iterator[Job]:
        queued = (job for job in self._state.jobs.live.values() if job.state is JobState.QUEUED)
        return (job for job in queued if may_start(self._state, job))

    def _decide(self, queued: list[Job], host: Inventory | None, now: float) -> float:
        """Decide, and prepare what is to start; return when it was decided."""
        blocked = dict(self._blocked(queued, host, now))
        live = self._state.jobs.live  # of which some were cancelled just now, and arrays asked to stop
        waiting = [job for job in queued if job.id in live and not live[job.id].stop_asked]
        waiting = list(offered(self._state, waiting, blocked, _OFFERED))
        running = self._running()  # before the locks: it reads files of the jobs
        limits = Limits(limits_of(self._state.jobs), at_most(self._state))
        with self._snapshots(waiting, host) as (snapshots, directories):
            decision = schedule(
                waiting,
                running,
                snapshots,
                blocked,
                self._state.settings,
                time.time(),
                expected=self._state.expectations.expected,
                limits=limits,
            )
            self._state.why = _with_arrays(waiting, decision.why)
            started = (job for job in live.values() if job.state is not JobState.QUEUED)
            self._state.queue_seen = QueueSnapshot(
                tuple(waiting), tuple(started), snapshots, blocked, time.time(), limits
            )
            self._note_faults(decision.faults, waiting)
            jobs = {job.id: job for job in waiting}
            for head, expected in decision.promised.items():
                waits = live.get(head) or live[jobs[head].array or ""]
                self._state.jobs.change(replace(waits, promised=expected))
            decided = time.monotonic()  # what is written from now on is no matter of how long the queue is
            self._start(decision, jobs, directories, now)
        return decided

    def _blocked(self, queued: list[Job], host: Inventory | None, now: float) -> Iterator[tuple[str, str]]:
        """Yield the jobs that must not start now, each with the reason; cancel those that never may."""
        machines = {job.submission.machine for job in queued if job.submission}
        troubles = {machine: self._trouble(machine, host) for machine in machines}
        for job in queued:
            asked = job.submission
            if asked is None:
                continue
            try:
                over = self._can_never_start(job, asked)
                reason = self._reason(job, asked, now) or why_paused(self._state.jobs, asked.group)
            except HostFault as error:  # the record of an earlier job is damaged: that is nothing to the others
                yield job.id, error.message
                continue
            except Exception as error:  # noqa: BLE001 (nor is an internal error)
                yield job.id, self._state.note_fault(job.id, _BLOCKED, error)
                continue
            self._state.faults.pop((job.id, _BLOCKED), None)
            trouble = None if asked.machine is None and not needs_devices(asked) else troubles[asked.machine]
            if over is not None:
                stop_job(self._state, job, now, kill=False, why=over)
            elif reason or trouble:
                yield job.id, reason or trouble or ""

    def _trouble(self, machine: str | None, host: Inventory | None) -> str | None:
        """Return why the devices of a machine cannot be used: its jobs are not to run without them for that."""
        try:
            if machine is not None:
                self._state.devices.machine(machine)
            elif host is not None:
                require_usable(host)
        except GpuschedError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 (the jobs of other machines are not concerned)
            _LOG.exception("machine %s cannot be used", machine)
            return f"internal error: {type(error).__name__}: {error}; see daemon.log"
        return None

    def _note_faults(self, faults: Mapping[str, Exception], waiting: list[Job]) -> None:
        for job in waiting:
            if job.id in faults:
                self._state.why[job.id] = self._state.note_fault(job.id, _DECISION, faults[job.id])
            else:
                self._state.faults.pop((job.id, _DECISION), None)

    def _can_never_start(self, job: Job, asked: Submission) -> str | None:
        if launcher_exited(job):
            return "the process that ran it is gone"
        for earlier in asked.after:
            state = self._state.jobs.state(earlier)
            if state in JOB_TERMINAL and state is not JobState.SUCCEEDED:
                return f"{earlier}, which it was to follow, {ENDED[state]}"
        return None

    def _reason(self, job: Job, asked: Submission, now: float) -> str | None:
        if job.held:
            return f"held; let it go with: gpusched release {job.id}"
        if asked.at is not None and asked.at > time.time():
            return f"starts at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(asked.at))}"
        state = self._state.jobs.state
        successes = [one for one in asked.after if state(one) is not JobState.SUCCEEDED]
        ends = [one for one in asked.after_any if state(one) not in (None, *JOB_TERMINAL)]
        if successes or ends:
            return waits_for(successes, ends)
        pause_s = self._state.not_before.get(job.id, 0.0) - now
        if pause_s > 0:
            self._next = min(self._next, now + pause_s)
            why = self._state.hindrances.get(job.id) or job.message or "it could not be started"
            return f"{why}; tried again in {pause_s:.0f} s"
        if asked.launcher is not None and not self._state.waiting.is_interested(job.id, now):
            return "the command that asked for it is stopped: bring it back with fg"
        return None

    @contextmanager
    def _snapshots(
        self, waiting: list[Job], host: Inventory | None
    ) -> Iterator[tuple[Mapping[str | None, MachineSnapshot], Mapping[bool, LeaseDirectory]]]:
        """Give what to plan on, under the locks for planning. Raises HostFault if another process holds one."""
        machines = {job.submission.machine for job in waiting if job.submission}
        snapshots: dict[str | None, MachineSnapshot] = {}
        directories: dict[bool, LeaseDirectory] = {}
        known = self._state.jobs.held()
        with ExitStack() as locks:
            for simulated in sorted({machine is not None for machine in machines}):
                directories[simulated] = self._state.leases(simulated=simulated)
                locks.enter_context(directories[simulated].locked(patience_s=0))
            if host is not None and False in directories:  # else all jobs of this host were cancelled just now
                leases = current_leases(directories[False], host, lambda _: known)
                snapshots[None] = MachineSnapshot(inventory=host, leases=leases, began=began)
            described = directories[True].read() if True in directories else ()
            for machine in machines - {None}:
                with suppress(GpuschedError):  # its jobs are blocked, each with the reason
                    inventory, saved = self._state.devices.machine(str(machine))
                    leases = with_known(described, known, inventory)
                    snapshots[machine] = MachineSnapshot(inventory=inventory, leases=(*saved, *leases))
            yield snapshots, directories

    def _running(self) -> list[Running]:
        now = time.time()
        started = [job for job in self._state.jobs.live.values() if job.state is not JobState.QUEUED]
        self._state.expectations.read_reports(started, now)
        return [self._state.expectations.running(job, now) for job in started]

    def _start(
        self, decision: Decision, jobs: Mapping[str, Job], directories: Mapping[bool, LeaseDirectory], now: float
    ) -> None:
        until = time.monotonic() + _LONGEST_WRITING_S
        most = self._cpus * _STARTING_PER_CPU
        for start in decision.starts:
            starting, job = self._state.starts.just_starting, jobs[start.id]
            if starting >= most or time.monotonic() > until:
                self._state.why[start.id] = f"its turn has come; {starting} others are just starting"
            elif self._state.starts.forks.doing(job.array or "") is None:
                self._prepare(start, job, directories, now)

    def _prepare(self, start: Start, job: Job, directories: Mapping[bool, LeaseDirectory], now: float) -> None:
        simulated = job.submission is not None and job.submission.machine is not None
        if self._state.not_before.get(job.array or "", 0.0) > now:  # the member before it was put off
            return
        promised = job.promised
        try:
            if job.id not in self._state.jobs.live:
                job = made(self._state, job)
            self._state.starts.prepare(job, start.plan, directories[simulated], now)
        except GpuschedError as error:
            self._put_off(job, error.message, now)
        except Exception as error:  # noqa: BLE001 (those behind it start all the same)
            self._put_off(job, self._state.note_fault(job.id, _PREPARATION, error), now)
        else:
            self._state.faults.pop((job.id, _PREPARATION), None)
            self._state.why.pop(job.id, None)
            self._state.hindrances.pop(job.id, None)
            begin(self._state, job, leases_of_plan(start.plan, job.id))
            array = self._state.jobs.live.get(job.array or "")
            if array is not None and array.promised is not None and array.promised == promised:
                self._state.jobs.change(replace(array, promised=None))  # that was this member's, not the next one's

    def _put_off(self, job: Job, why: str, now: float) -> None:
        waits = job.id if job.id in self._state.jobs.live else job.array or ""
        self._state.not_before[waits] = now + _TRY_AGAIN_S
        self._state.why[waits] = self._state.hindrances[waits] = why


def _with_arrays(waiting: list[Job], why: Mapping[str, str]) -> dict[str, str]:
    """Return why jobs wait: an array for what the first of its members waits for that come next."""
    of_arrays = {job.array: why[job.id] for job in reversed(waiting) if job.array is not None and job.id in why}
    return of_arrays | dict(why)


def _on_this_host(job: Job) -> bool:
    return job.submission is not None and job.submission.machine is None
