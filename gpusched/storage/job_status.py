"""The public status of a job: what the daemon knows, joined with what its supervisor wrote."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.hosts import with_network
from gpusched.execution.read_jobs import whole
from gpusched.linux.users import user_name
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.storage.job import Job

__all__ = ["current_status", "leave_status", "read_current", "runs_again", "shown_state", "status_of"]

_WORKED_ON: Final = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def current_status(job: Job) -> JobStatus | None:
    """Return what the supervisor of the job's present attempt wrote; None before that, or if it cannot be read."""
    try:
        return read_current(job)
    except HostFault:
        return None


def read_current(job: Job) -> JobStatus | None:
    """Return what the supervisor of the job's present attempt wrote, None before its first. Raises HostFault."""
    status = JobDirectory(Path(job.run_dir)).read_status()
    mine = status is not None and status.attempt == job.attempt and status.supervisor_pid is not None
    return status if mine else None


def leave_status(job: Job) -> None:
    """Leave the end of a job in its directory if no supervisor did: without a daemon it would seem to wait."""
    if job.last is not None and current_status(job) is None:
        with suppress(OSError):  # such as a full disk: the database has it
            JobDirectory(Path(job.run_dir)).leave_status(job.last)


def runs_again(job: Job, end: JobStatus) -> bool:
    """Return whether a job that ended so is to be queued again: it was ended from outside, and by no person."""
    asked = job.submission
    again = (JobState.LOST, JobState.CANCELLED) if end.engine is None else (JobState.LOST,)  # scancel means it
    from_outside = end.state in again and not job.stop_asked
    return from_outside and asked is not None and asked.requeue and asked.launcher is None


def status_of(job: Job, why: str | None = None) -> JobStatus:
    """Return the job as others see it; `why` is why it waits. It reads the job's directory if the job is worked on."""
    if job.is_array:
        return _with_wishes(job.last or _array(job), job, why)
    status, trouble = job.last, None
    if status is None and job.state in _WORKED_ON:
        try:
            status = read_current(job)
        except HostFault as error:
            trouble = error.message
        if status is not None and status.state not in JOB_TERMINAL:
            status = whole(JobDirectory(Path(job.run_dir)), status)
        elif status is not None and runs_again(job, status):
            status = msgspec.structs.replace(status, state=JobState.STOPPING, ended=None)
    return _with_wishes(status or _bare(job, trouble), job, why)


def _array(job: Job) -> JobStatus:
    """Return an array: queued until its first member begins, then running until the last has ended."""
    return msgspec.structs.replace(_bare(job, None), state=shown_state(job))


def shown_state(job: Job) -> JobState:
    """Return the state that a person sees: an array, which is queued until its end, runs from its first start on."""
    if not job.is_array or job.state in JOB_TERMINAL or job.started is None:
        return job.state
    return JobState.STOPPING if job.stop_asked else JobState.RUNNING


def _bare(job: Job, trouble: str | None) -> JobStatus:
    bare = JobStatus(
        id=job.id,
        workload=job.submission.workload.name if job.submission else job.id.rpartition("-")[0],
        state=job.state,
        counts=(),
        replicas=(),
        run_dir=job.run_dir,
        machine=(job.submission.machine or "") if job.submission else "",
        simulated=job.submission is not None and job.submission.machine is not None,
        ended=job.ended,
        message=trouble or job.message,
    )
    return with_network(bare, job.submission.network if job.submission else None)


def _with_wishes(status: JobStatus, job: Job, why: str | None) -> JobStatus:
    started = job.started or (None if job.state is JobState.QUEUED else status.started)
    status = msgspec.structs.replace(
        status,
        created=job.created,
        attempt=job.attempt,
        started=started,
        why=why,
        user=user_name(os.geteuid()),
        idle_since=job.idle_since,
    )
    asked = job.submission
    if asked is None:
        return status
    names = dict.fromkeys(asked.array.names, "") if asked.array else asked.parameters
    return msgspec.structs.replace(
        status,
        array=job.members,
        parameters=names,
        name=asked.name,
        group=asked.group,
        command=asked.typed,
        cwd=asked.cwd,
        priority=asked.priority,
        held=job.held and job.state is JobState.QUEUED,
        after=asked.after,
        after_any=asked.after_any,
        at=asked.at,
        time_limit_s=asked.time_limit_s,
        idle_end_s=asked.idle_end_s,
    )
