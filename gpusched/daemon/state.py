"""What the daemon consists of, in one value that its steps share."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from gpusched.daemon.delivery_process import SpawnDelivery
from gpusched.daemon.device_meter import DeviceMeter
from gpusched.daemon.devices import Devices
from gpusched.daemon.exit_watcher import ExitWatcher
from gpusched.daemon.idleness import Idleness
from gpusched.daemon.pending_replies import PendingReplies
from gpusched.daemon.starting_jobs import StartingJobs
from gpusched.execution.learner_socket import remove_socket
from gpusched.leases.directory import LeaseDirectory, lease_directory
from gpusched.model.status import JobState, JobStatus
from gpusched.scheduling.expectations import Expectations
from gpusched.scheduling.outlook import Outlook, QueueSnapshot
from gpusched.settings import Settings
from gpusched.storage.job import Job
from gpusched.storage.job_status import status_of
from gpusched.storage.job_table import JobTable

__all__ = ["A_FLOOD", "MOST_FAULTS_LOGGED", "DaemonState"]

_LOG: Final = logging.getLogger(__name__)
MOST_FAULTS_LOGGED: Final = 5
"""Most internal errors in one step of one job that are logged, each with its traceback."""

A_FLOOD: Final = 4
"""Number of latest submissions whose times are kept, to detect a flood of them."""


@dataclass
class DaemonState:
    """The parts of the daemon, and what passes between the steps of one turn. `not_before` is in monotonic seconds.

    `prepared`: jobs to be spawned once they are saved; `orders`: running jobs to be stopped once that is saved, and
    whether to kill; `kills`: the same for jobs that have not shown themselves. `why` has why each queued job waits,
    `hindrances` what kept them from it when their turn had come. `arrivals`: when the latest submissions came.
    `faults`: internal errors, by job and step; `faults_logged`: how many of them were. `kill_by`: until when a
    supervisor may take to kill its job; `forced`: jobs whose supervisor was killed for that, with pid and start of the
    guard. `left_sockets`: of learners that were killed with guard and supervisor, and all others of jobs that are over.
    `spawn_delivery` starts what delivers notifications.
    `queue_seen`: what the latest pass has decided on. `outlooks`: what is being found out of jobs that wait.
    """

    settings: Settings
    jobs: JobTable
    devices: Devices
    starts: StartingJobs
    spawn_delivery: SpawnDelivery
    waiting: PendingReplies = field(default_factory=PendingReplies)
    watch: ExitWatcher = field(default_factory=ExitWatcher)
    meter: DeviceMeter = field(default_factory=DeviceMeter)
    expectations: Expectations = field(init=False)
    idleness: Idleness = field(init=False)
    started: float = field(default_factory=time.time)
    prepared: list[str] = field(default_factory=list)
    orders: list[tuple[str, bool]] = field(default_factory=list)
    kills: dict[str, bool] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    hindrances: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    faults_logged: dict[tuple[str, str], int] = field(default_factory=dict)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=A_FLOOD))
    kill_by: dict[str, float] = field(default_factory=dict)
    forced: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    left_sockets: set[Path] = field(default_factory=set)
    queue_seen: QueueSnapshot | None = None
    outlooks: deque[Outlook] = field(default_factory=deque)
    over: bool = False
    queue_changed: bool = True

    def __post_init__(self) -> None:
        """Make what needs another part."""
        self.expectations = Expectations(self.jobs)
        self.idleness = Idleness(self.settings.idle_after_s, self.settings.idle_below)

    def shown(self, job: Job) -> JobStatus:
        """Return a job as others see it, with why it waits, and what its next members wait for."""
        why = self.why.get(job.id)
        if why is None and job.array is not None and job.state is JobState.QUEUED:
            why = self.why.get(job.array)
        status = self.meter.merged(status_of(job, why))
        note = self.starts.forks.doing(job.id)
        status = status if note is None else replace(status, note=note)
        return replace(status, idle_since=self._members_idle_since(job)) if job.is_array else status

    def _members_idle_since(self, array: Job) -> float | None:
        """Return since when all members of an array that live do nothing with their devices; None if one does."""
        since = [self.jobs.live[member].idle_since for member in self.jobs.arrays.live(array.id)]
        known = [moment for moment in since if moment is not None]
        return max(known) if known and len(known) == len(since) else None

    def leases(self, *, simulated: bool) -> LeaseDirectory:
        """Return the lease directory of this host, or that of described machines."""
        return lease_directory(self.settings, simulated=simulated)

    def changed(self) -> None:
        """Note that the queue needs another pass: something came, went, or gave its place free."""
        self.queue_changed = True

    def remove_left_sockets(self) -> None:
        """Remove the sockets of jobs that are over; one that a dying learner still holds stays until the next call."""
        self.left_sockets = {path for path in self.left_sockets if not remove_socket(path)}

    def contain(self, job_id: str, step: str, act: Callable[[], object]) -> bool:
        """Do something for one job, and keep an internal error of it from the others; return whether it was done."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 (whatever it is, the next job is not at fault)
            self.note_fault(job_id, step, error)
            return False
        self.faults.pop((job_id, step), None)
        return True

    def note_fault(self, job_id: str, step: str, error: Exception) -> str:
        """Log an internal error at a job, show it until the step succeeds or the job is over; return its text.

        It is logged where it is another one than the last, but a few times only: its text may change each time.
        """
        text = f"internal error in {step} of {job_id}: {type(error).__name__}: {error}; see daemon.log"
        if self.faults.get((job_id, step)) != text:
            self.faults[job_id, step] = text
            count = self.faults_logged[job_id, step] = self.faults_logged.get((job_id, step), 0) + 1
            if count <= MOST_FAULTS_LOGGED:
                last = " (further ones are not logged)" if count == MOST_FAULTS_LOGGED else ""
                _LOG.error("%s%s", text, last, exc_info=error)
        return text

    def forget(self, job_id: str) -> None:
        """Drop what was kept beside a job that is over."""
        self.watch.forget(job_id)
        self.waiting.forget(job_id)
        self.expectations.forget(job_id)
        self.meter.forget(job_id)
        self.idleness.forget(job_id)
        self.starts.forks.forget(job_id)
        kept: tuple[dict[str, Any], ...] = (self.kills, self.why, self.hindrances, self.failures)
        for one in (*kept, self.losses, self.not_before, self.kill_by, self.forced):
            one.pop(job_id, None)
        for fault in [key for key in self.faults_logged if key[0] == job_id]:
            del self.faults_logged[fault]
            self.faults.pop(fault, None)
        self.changed()
