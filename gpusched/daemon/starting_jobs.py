"""Jobs between the decision that they start and the moment their supervisor shows itself.

The steps are those of execution/prepare.py. The queue reserves and writes; the loop saves the state `starting` in the
database, so that the next daemon knows of the start and cancels it; then it spawns.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from gpusched.daemon.fork_client import ForkServerClient
from gpusched.daemon.fork_servers import ForkServers
from gpusched.daemon.starter import Spawn
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory, complete
from gpusched.execution.prepare import Reservation, reserve
from gpusched.execution.read_jobs import START_PATIENCE_S
from gpusched.execution.start import cancel_start
from gpusched.leases.directory import LeaseDirectory
from gpusched.model.plan import Plan
from gpusched.settings import Settings
from gpusched.storage.job import Job

__all__ = ["StartingJobs"]

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.02
_FORK_PATIENCE_S: Final = 10.0
"""After that, a guard that was asked of the fork server and shows nothing is not waited for: it may hang."""


class _Start(msgspec.Struct, kw_only=True):
    """One job on its way; without a `reservation` an earlier daemon began the start.

    `held`: it waits for what this fork server imports. `asked`: the one that was asked for its guard. `unserved`: that
    has gone since, which is no fault of the job.
    """

    until: float
    reservation: Reservation | None = None
    spawned: bool = False
    guard: int | None = None
    guard_ended: bool = False
    held: ForkServerClient | None = None
    asked: ForkServerClient | None = None
    unserved: bool = False


class StartingJobs:
    """The jobs on their way, by id; times: monotonic seconds. `spawn` starts a guard, and returns its pid if known.

    `forks`, the fork servers, are asked first.
    """

    def __init__(self, settings: Settings, spawn: Spawn, forks: ForkServers) -> None:
        self._settings, self._spawn, self.forks = settings, spawn, forks
        self._starts: dict[str, _Start] = {}
        self._next = 0.0

    @property
    def just_starting(self) -> int:
        """How many are on their way and not held."""
        return sum(start.held is None for start in self._starts.values())

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._starts

    def prepare(self, job: Job, plan: Plan, leases: LeaseDirectory, now: float) -> None:
        """Commit the leases of a plan and write what is to be started; `leases` must be locked.

        Raises HostFault, and for a job of which another host is a part NotFound and UsageError.
        """
        asked = job.submission
        if asked is None:
            raise HostFault(f"{job.id} was not submitted", "")
        directory = JobDirectory(Path(job.run_dir))
        complete(directory)
        reservation = reserve(directory, plan, leases)
        attached = asked.launcher is not None
        reservation.write(asked, self._settings, created=job.created, attempt=job.attempt, attached=attached)
        self._starts[job.id] = _Start(until=now + START_PATIENCE_S, reservation=reservation)

    def spawn(self, job: Job, now: float) -> bool:
        """Start the guard of a prepared job; an attached job's launcher starts it.

        Returns False if the job is held until what it imports is there. Its state must be on disk. Raises HostFault.
        """
        start = self._starts[job.id]
        start.until = now + START_PATIENCE_S
        if job.submission is not None and job.submission.launcher is None and start.reservation is not None:
            wanted = (start.reservation.directory, start.reservation.nonce, job.submission.environ)
            for server in self.forks.for_job(job):
                if server.fork(*wanted, now):
                    start.spawned, start.asked, start.until = True, server, now + _FORK_PATIENCE_S
                    return True
                if server.is_awaited:
                    start.held = server
                    return False
            start.guard = self._spawn(*wanted)
        start.spawned = True
        return True

    def released(self) -> list[str]:
        """Return the jobs that were held and are to be spawned now, or in another way."""
        found = [job_id for job_id, one in self._starts.items() if one.held is not None and not one.held.is_awaited]
        for job_id in found:
            self._starts[job_id].held = None
        return found

    def may_begin(self, job_id: str) -> bool:
        """Return whether all is ready for the launcher of an attached job to start its guard."""
        return job_id in self._starts and self._starts[job_id].spawned

    def guard_ended(self, pid: int) -> None:
        """Note that a child of this process ended and was reaped."""
        for server in self.forks:
            server.reaped(pid)
        for start in self._starts.values():
            if start.guard == pid:
                start.guard_ended = True

    def descriptors(self) -> list[int]:
        """Return what becomes readable when a fork server has a message."""
        return [number for server in self.forks if (number := server.fileno()) is not None]

    def receive(self, now: float) -> None:
        """Note which guards of fork servers have ended, or all that a server still owed if it has."""
        for server in self.forks:
            server.check(now)
            ended, gone = server.receive(now)
            for start in self._starts.values() if ended else ():
                if start.asked is server and start.reservation is not None and start.reservation.nonce in ended:
                    start.guard_ended = True
            if gone:
                self._leave_unserved(server)

    def shown(self, job_id: str) -> None:
        """The supervisor is there, or was, and has taken its leases: let go of what was held for it."""
        start = self._starts.pop(job_id, None)
        if start is not None and start.reservation is not None:
            start.reservation.release()

    def cancel_start(self, job: Job) -> bool:
        """See that nothing is started, and give the leases back; False if a guard lives, so that it is too late."""
        directory = JobDirectory(Path(job.run_dir))
        try:
            if not cancel_start(directory):
                return False
        except HostFault as error:
            _LOG.warning("%s", error)
            return False
        start = self._starts.pop(job.id, None)
        if start is not None and start.reservation is not None:
            start.reservation.rollback()
        return True

    def overdue(self, job_id: str, now: float) -> bool:
        """Return whether the supervisor should have shown itself, or its guard has ended before that."""
        start = self._starts[job_id]
        if start.asked is not None and now >= start.until:
            start.asked.give_up(f"started nothing of {job_id} within {_FORK_PATIENCE_S:.0f} s", now)
            self._leave_unserved(start.asked)
        return start.spawned and (start.guard_ended or now >= start.until)

    def unserved(self, job_id: str) -> bool:
        """Return whether the fork server that was to start the job is gone: another try is not one more failure."""
        return job_id in self._starts and self._starts[job_id].unserved

    def _leave_unserved(self, server: ForkServerClient) -> None:
        for start in self._starts.values():
            if start.asked is server:
                start.asked, start.unserved = None, True
                start.guard_ended = True

    def wait_on(self, job_id: str, now: float) -> None:
        """Give a guard that lives more time; an earlier daemon may have started it."""
        start = self._starts.setdefault(job_id, _Start(until=0.0, spawned=True))
        start.until, start.guard_ended = now + START_PATIENCE_S, False
        start.asked, start.unserved = None, False

    def due_checks(self, now: float) -> list[str]:
        """Return the jobs whose supervisor may have shown itself; it costs a read of a file for each."""
        if now < self._next:
            return []
        self._next = now + _POLL_S
        return [job_id for job_id, start in self._starts.items() if start.spawned]

    def due(self) -> float | None:
        """Return when to check again, None if nothing is on its way."""
        return self._next if any(start.spawned for start in self._starts.values()) else None
