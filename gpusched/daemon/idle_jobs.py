"""What follows from a job being idle: it is marked, that is an event, and with --idle-end it is warned and ended."""

import contextlib
import logging
import time
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, NotFound
from gpusched.execution.orders import IdleOrder, give
from gpusched.model.idle import Idle, IdleProcess, end_text, idle_text
from gpusched.model.status import JobState, JobStatus
from gpusched.storage.job import Job

__all__ = ["IdleJobs", "idle_now"]

_LOG: Final = logging.getLogger(__name__)
_ON_THEIR_WAY: Final = (JobState.STARTING, JobState.RUNNING)
_MOVED_S: Final = 2.0
"""By how much the moment may differ before it counts as another one."""


def idle_now(state: DaemonState, now: float) -> Idle | None:
    """Return the jobs that are idle, and the processes of no job, None if there are none; `now` in Unix seconds."""
    jobs = {job.id: job.idle_since for job in state.jobs.live.values() if job.idle_since is not None}
    processes = tuple(
        IdleProcess(device_uuid=uuid, pid=pid, since=round(now - idle_s, 1))
        for (uuid, pid), idle_s in state.idleness.others().items()
    )
    return Idle(jobs=jobs, processes=processes) if jobs or processes else None


class IdleJobs:
    """Marks the jobs that are idle, and gives their supervisors orders. A job is ended only after it was warned."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._warned = {job.id for job in state.jobs.live.values() if job.idle_since is not None}
        self._ended = set[str]()

    def check(self, using: Iterable[JobStatus]) -> None:
        """Judge the jobs by the latest reading; `using` are their statuses as their supervisors wrote them."""
        live = self._state.jobs.live
        self._warned &= live.keys()
        self._ended &= live.keys()
        for status in using:
            if status.id in live and status.state in _ON_THEIR_WAY:
                self._judge(live[status.id], status)

    def _judge(self, job: Job, status: JobStatus) -> None:
        end_s = job.submission.idle_end_s if job.submission else None
        after_s = self._state.settings.idle_after_s
        idle_s = self._state.idleness.idle_s(job.id, after_s if end_s is None else min(after_s, end_s / 2))
        if idle_s is None:
            self._warned.discard(job.id)
            if job.idle_since is not None:
                self._state.jobs.change(replace(job, idle_since=None))
            return
        if end_s is not None and job.id not in self._warned:
            if not self._give(status, IdleOrder(message=idle_text(idle_s, end_s))):
                return
            self._warned.add(job.id)
        elif end_s is not None and job.id not in self._ended and self._state.idleness.idle_s(job.id, end_s) is not None:
            _LOG.warning("%s: %s", job.id, end_text(end_s))
            if self._give(status, IdleOrder(message=end_text(end_s), end=True)):
                self._ended.add(job.id)
        since = round(time.time() - idle_s, 1)
        if job.idle_since is None or abs(job.idle_since - since) > _MOVED_S:
            self._state.jobs.change(replace(job, idle_since=since))

    def _give(self, status: JobStatus, order: IdleOrder) -> bool:
        """Return whether the supervisor has the order; a full disk, for one, holds it up until the next reading."""
        with contextlib.suppress(NotFound, HostFault):
            give(status, order)
            return True
        return False
