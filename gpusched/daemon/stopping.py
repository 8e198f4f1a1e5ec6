"""A job is to end: one that waits is cancelled, one that runs is asked to, and an array ends with its members."""

import time
from typing import Final

from msgspec.structs import replace

from gpusched.daemon.arrays import owner_exited
from gpusched.daemon.lifecycle import STOPPED, cancel, cancel_start
from gpusched.daemon.state import DaemonState
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.job import Job

__all__ = ["stop_job", "stop_ownerless"]

_OWNER_GONE: Final = "stopped because the process that queued it has ended"


def stop_job(state: DaemonState, job: Job, now: float, *, kill: bool, why: str = STOPPED) -> str:
    """Stop a job, and return a line that reports it. Its end comes later, unless nothing of it runs."""
    if job.state in JOB_TERMINAL:
        return f"{job.id} is over: {job.state}"
    if job.is_array:
        return _stop_array(state, job, now, kill=kill, why=why)
    if job.state is JobState.QUEUED or (job.id in state.starts and cancel_start(state, job, now)):
        cancel(state, job, why)
        return f"{job.id} is cancelled"
    state.jobs.change(replace(job, stop_asked=True))
    if job.id in state.starts:
        state.kills[job.id] = kill
    else:
        state.orders.append((job.id, kill))
    return f"{job.id} is stopping"


def stop_ownerless(state: DaemonState) -> None:
    """Stop the arrays whose owner has ended."""
    for job_id in tuple(state.jobs.arrays):
        job = state.jobs.live[job_id]
        if not job.stop_asked and owner_exited(job):
            stop_job(state, job, time.monotonic(), kill=False, why=_OWNER_GONE)


def _stop_array(state: DaemonState, job: Job, now: float, *, kill: bool, why: str) -> str:
    """Let no more members begin, and stop those that live; the end of the last is the end of the array."""
    live = state.jobs.arrays.live(job.id)
    state.jobs.change(replace(job, stop_asked=True, message=why))
    for member in live:
        stop_job(state, state.jobs.live[member], now, kill=kill, why=why)
    state.changed()
    return f"{job.id} is stopping, with {len(live)} of its members" if live else f"{job.id} is cancelled"
