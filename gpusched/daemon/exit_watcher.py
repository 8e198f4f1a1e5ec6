"""Notices that a job may have ended: by a pidfd of its guard, and by a clock for what a pidfd does not show."""

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import Final

from gpusched.execution.read_jobs import is_alive
from gpusched.linux.processes import parent
from gpusched.model.status import JobStatus

__all__ = ["ExitWatcher", "guard_of"]

_WATCHED_S: Final = 5.0
_UNWATCHED_S: Final = 1.0
_LINGERING_S: Final = 0.05


class ExitWatcher:
    """The jobs whose end is waited for. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._descriptors: dict[int, str] = {}
        self._check_at: dict[str, float] = {}

    def follow(self, job_id: str, guard: int | None, now: float) -> None:
        """Watch a job by its guard, which must not have been reaped; by the clock, and closely, if it is None."""
        self.forget(job_id)
        self._check_at[job_id] = now + _LINGERING_S
        if guard is not None:
            self._check_at[job_id] = now + _UNWATCHED_S
            with contextlib.suppress(OSError):  # gone, or a kernel before 5.3
                self._descriptors[os.pidfd_open(guard)] = job_id
                self._check_at[job_id] = now + _WATCHED_S

    def follow_up(self, job_id: str, status: JobStatus, now: float) -> None:
        """Watch a job that lives. Where its supervisor is gone, a guard that is known goes on, if it was halted.

        It has to end what is left.
        """
        known = [descriptor for descriptor, watched in self._descriptors.items() if watched == job_id]
        if is_alive(status) or not known:
            self.follow(job_id, guard_of(status), now)
            return
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(known[0], signal.SIGCONT)
        self._check_at[job_id] = now + _UNWATCHED_S

    def forget(self, job_id: str) -> None:
        """Watch a job no longer."""
        self._check_at.pop(job_id, None)
        for descriptor in [one for one, watched in self._descriptors.items() if watched == job_id]:
            del self._descriptors[descriptor]
            os.close(descriptor)

    def descriptors(self) -> Iterable[int]:
        """Return what becomes readable when a guard ends."""
        return self._descriptors.keys()

    def readable(self, descriptor: int, now: float) -> None:
        """Take note that a guard ended: its job is checked, and again until its supervisor has ended too."""
        job_id = self._descriptors.get(descriptor)
        if job_id is not None:
            self.forget(job_id)
            self._check_at[job_id] = now

    def due_jobs(self, now: float) -> list[str]:
        """Return the jobs that may have ended."""
        return [job_id for job_id, when in self._check_at.items() if when <= now]

    def due(self) -> float | None:
        """Return when to check a job, None if there is none to check by the clock."""
        return min(self._check_at.values(), default=None)


def guard_of(status: JobStatus) -> int | None:
    """Return the pid of the guard above the job's supervisor, None if one of them is gone."""
    if status.supervisor_pid is None:
        return None
    guard = parent(status.supervisor_pid)
    return guard if guard not in (None, 1, os.getpid()) and is_alive(status) else None  # who adopts is no guard
