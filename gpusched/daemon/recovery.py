"""What happened while no daemon ran: jobs that went on, ended or never began; and jobs that others started.

A `launch` in the foreground starts its job itself; the daemon finds it by its directory and treats it as its own.
"""

import os
import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from gpusched.daemon.lifecycle import (
    adopt_running,
    cancel,
    launcher_exited,
    running,
    settle,
)
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.expand import job_socket
from gpusched.execution.guard_lock import has_begun
from gpusched.execution.lease_usage import leases_of_spec
from gpusched.execution.read_jobs import START_PATIENCE_S, read_job
from gpusched.model.array import array_of
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.job import Job

__all__ = ["Adoption", "reconcile"]

_SCAN_EVERY_S: Final = 1.0
_MOST_AT_ONCE: Final = 200
_CLOCK_STEP_NS: Final = 50_000_000


def reconcile(state: DaemonState, now: float) -> None:
    """Find every job of the table again, when the daemon starts."""
    for job in list(state.jobs.live.values()):
        if job.state is JobState.QUEUED:
            if launcher_exited(job):
                cancel(state, job, "the process that ran it is gone")
        elif not state.contain(job.id, "the recovery", partial(settle, state, job, now)):
            state.watch.follow(job.id, None, now)


class Adoption:
    """Finds jobs that were started without the daemon, by their directories."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state
        self._jobs = state.settings.state_dir / "jobs"
        self._seen_at = -1
        self._fresh: list[str] = []
        self._young: dict[str, float] = {}
        self._next = 0.0

    def due(self) -> float:
        """Return when to scan by the clock (monotonic)."""
        return self._next

    def scan(self) -> None:
        """Take in the jobs that are there by now; it costs next to nothing while no directory came or went."""
        now = time.monotonic()
        self._next = now + _SCAN_EVERY_S
        try:
            self._list()
        except OSError:  # no jobs yet, or the directory cannot be read at present
            return
        fresh, self._fresh = self._fresh[:_MOST_AT_ONCE], self._fresh[_MOST_AT_ONCE:]
        for name in [*islice(self._young, _MOST_AT_ONCE), *fresh]:
            until = self._young.pop(name, now + START_PATIENCE_S)
            if name in self._state.jobs.known:
                continue
            if not self._state.contain(name, "the adoption", partial(self._adopt, self._jobs / name, now)):
                self._state.watch.follow(name, None, now)  # in case the table has it already
            if name not in self._state.jobs.known and now < until:
                self._young[name] = until
        if self._fresh:
            self._next = now

    def _list(self) -> None:
        changed = self._jobs.stat().st_mtime_ns
        if changed == self._seen_at:
            return
        names = {entry.name for entry in os.scandir(self._jobs) if entry.name.isprintable()}  # as all of ours are
        settled = time.time_ns() - changed > _CLOCK_STEP_NS  # else a later one might get the same time
        self._seen_at = changed if settled else -1
        fresh = names - self._state.jobs.known - self._young.keys()
        self._fresh = [one for one in fresh if array_of(one) not in self._state.jobs.known]  # the table has its members

    def _adopt(self, path: Path, now: float) -> None:
        """Take in the job of a directory, if there is one that has been started."""
        if not os.path.lexists(path / "spec.json"):
            return
        directory = JobDirectory(path)
        status = read_job(path)
        if status.state in JOB_TERMINAL and array_of(path.name) is not None:  # of an array that is no more
            return
        unseen = status.supervisor_pid is None and status.state not in JOB_TERMINAL
        if unseen and not has_begun(directory):  # who holds its lock may only prepare it: its guard is still to come
            return
        memory_options, whole_roles = _of_spec(directory)
        job = Job(
            id=path.name,
            run_dir=str(path),
            created=status.created,
            state=JobState.RUNNING,
            attempt=status.attempt,
            started=status.started,
            memory_options=memory_options,
            whole_roles=whole_roles,
        )
        if status.state in JOB_TERMINAL:
            over = msgspec.structs.replace(
                job, state=status.state, ended=status.ended or status.created, message=status.message, last=status
            )
            self._state.jobs.adopt(over)
            self._state.left_sockets.add(job_socket(self._state.settings, path))
            return
        leases = leases_of_spec(directory, status.started or status.created)
        job = running(msgspec.structs.replace(job, leases=leases), status)
        self._state.jobs.adopt(job)
        adopt_running(self._state, job, status, now)


def _of_spec(directory: JobDirectory) -> tuple[str, tuple[str, ...]]:
    """Return a job's memory options, and its roles with whole devices; none if its spec cannot be read."""
    with suppress(HostFault):
        spec = directory.read_spec()
        whole = {one.replica.role for one in spec.replicas if one.replica.whole}
        return spec.memory_options, tuple(sorted(whole))
    return "{}", ()
