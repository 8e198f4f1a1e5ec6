"""A `stop --kill` that a supervisor does not carry out: the daemon goes around it, and the guard kills."""

import logging
import os
import signal
from contextlib import suppress
from typing import Final

from gpusched.daemon.job import Job
from gpusched.daemon.lifecycle import known_status
from gpusched.daemon.state import DaemonState
from gpusched.execution.read_jobs import is_alive
from gpusched.linux.processes import parent, start_time

__all__ = ["force_kills"]

_LOG: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0


def force_kills(parts: DaemonState, now: float) -> None:
    """Kill the supervisors of jobs that were to be killed and whose time for that is over."""
    for job_id, when in list(parts.kill_by.items()):
        job = parts.book.live.get(job_id)
        if job is None:
            del parts.kill_by[job_id]
        elif now >= when:
            parts.kill_by[job_id] = now + _AGAIN_S
            _kill_supervisor(parts, job)


def _kill_supervisor(parts: DaemonState, job: Job) -> None:
    """Kill the supervisor, and have the guard go on, which kills what is left: once may be too early."""
    status = known_status(job)
    if status is not None and status.supervisor_pid is not None and is_alive(status):
        guard = parent(status.supervisor_pid) or 0
        _LOG.warning("%s: its supervisor, process %d, does not kill it: it is killed", job.id, status.supervisor_pid)
        parts.forced[job.id] = (guard, start_time(guard))
        _signal(status.supervisor_pid, signal.SIGKILL)
    guard, start = parts.forced.get(job.id, (0, None))
    if guard > 1 and start is not None and start_time(guard) == start:
        _signal(guard, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
