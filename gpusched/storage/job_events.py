"""Which events a change of a job is, and what is sent of them. Pure."""

import os
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from gpusched.model.event import Event
from gpusched.model.idle import idle_text
from gpusched.model.status import (
    JOB_TERMINAL,
    ExitReason,
    JobState,
    JobStatus,
    ReplicaState,
    fault_of,
    is_out_of_time,
)
from gpusched.storage.job import Job

__all__ = ["event_of", "happened", "new_id"]

_LONGEST_MESSAGE: Final = 2000
_OF_JOBS_THAT_RUN: Final = ("started", "idle")
_SIGNALLED: Final = 128


def new_id() -> str:
    """Return the id of an event, which no other has."""
    return os.urandom(16).hex()


def happened(before: Job | None, after: Job) -> Iterator[str]:
    """Yield the events of a job that was `before` and is `after`.

    Only jobs of the queue have any: a launch in the foreground has a person before it. One that is queued again after
    a loss is not over. One that was over before its start was seen has started all the same. An array has the events
    of its first start and of its end; its members have none.
    """
    if after.submission is None or before is None or after.array is not None:
        return
    if after.is_array and before.started is None and after.started is not None:
        yield "started"
    over = after.state in JOB_TERMINAL
    if before.idle_since is None and after.idle_since is not None and not over:
        yield "idle"
    has_run = after.state is JobState.RUNNING or (after.last is not None and after.last.supervisor_pid is not None)
    if before.state is JobState.STARTING and has_run and (over or after.state is JobState.RUNNING):
        yield "started"
    if over and before.state not in JOB_TERMINAL:
        yield _end(after)


def event_of(job: Job, kind: str, now: float, host: str, event_id: str) -> Event:
    """Return an event of a job as it is sent: nothing of its environment, and not its command line."""
    asked, over = job.submission, kind not in _OF_JOBS_THAT_RUN
    return Event(
        id=event_id,
        event=kind,
        time=round(now, 3),
        host=host,
        job=job.id,
        name=asked.name if asked else None,
        workload=asked.workload.name if asked else None,
        state=str(job.state if over else JobState.RUNNING),
        message=_message(job, kind, now)[:_LONGEST_MESSAGE] or None,
        exit_code=_exit_code(job) if over else None,
        attempt=job.attempt,
        created=job.created,
        started=_rounded(job.started),
        ended=_rounded(job.ended) if over else None,
        directory=asked.cwd if asked else None,
        run_dir=job.run_dir,
    )


def _message(job: Job, kind: str, now: float) -> str:
    if kind == "idle":
        return idle_text(now - (job.idle_since or now), job.submission.idle_end_s if job.submission else None)
    return "" if kind in _OF_JOBS_THAT_RUN else job.message or ""


def _rounded(moment: float | None) -> float | None:
    return None if moment is None else round(moment, 3)


def _end(job: Job) -> str:
    """Return how a job ended; of a failure the reason, where that has an event."""
    if job.state is not JobState.FAILED or job.last is None or job.submission is None or job.is_array:
        return str(job.state)
    fault = fault_of(job.last)
    if fault is not None:
        return "out-of-memory" if fault.kind == "oom" else "failed"
    timed = replace(job.last, started=job.started, ended=job.ended, time_limit_s=job.submission.time_limit_s)
    return "time-limit" if is_out_of_time(timed) else "failed"


def _exit_code(job: Job) -> int | None:
    """Return the exit code of the command or the leader, else of the replica that failed; None if none ended so."""
    end = _leader_end(job.last, job) if job.last is not None else None
    if end is None:
        return None
    if end.signal is not None:
        return _SIGNALLED + end.signal
    return 0 if end.kind == "completed" else end.code


def _leader_end(status: JobStatus, job: Job) -> ExitReason | None:
    leader = job.submission.workload.leader if job.submission else None
    own = [one.exit for one in status.replicas if one.role == leader]
    failed = [one.exit for one in status.replicas if one.state is ReplicaState.FAILED]
    return next((end for end in (*own, *failed) if end is not None), None)
