"""The course of a job after its start: it shows itself, it ends, it never began, it is lost, it is queued again.

The job's directory and the locks of its guard are the source of truth; the functions here read them and note it.
"""

import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, NotFound
from gpusched.execution.directory import JobDirectory
from gpusched.execution.expand import job_socket
from gpusched.execution.guard_lock import has_begun
from gpusched.execution.lease_usage import of_job
from gpusched.execution.read_jobs import is_alive, whole, without_supervisor
from gpusched.execution.start import has_exited, stop, why_not_started
from gpusched.linux.files import remove_tree
from gpusched.linux.processes import parent, start_time
from gpusched.linux.regular_files import last_lines
from gpusched.model.lease import Lease
from gpusched.model.status import JobState, JobStatus
from gpusched.storage.job import Job
from gpusched.storage.job_status import current_status, read_current, runs_again, status_of

__all__ = [
    "STOPPED",
    "adopt_running",
    "begin",
    "cancel",
    "cancel_start",
    "check_running",
    "check_starts",
    "discard",
    "force_kills",
    "known_status",
    "launcher_exited",
    "order_stop",
    "queue_again",
    "running",
    "settle",
    "spawn_prepared",
]

_LOG: Final = logging.getLogger(__name__)
_MOST_FAILED_STARTS: Final = 3
_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 300.0
_STABLE_S: Final = 60.0
_FAULT_PAUSE_S: Final = 1.0
STOPPED: Final = "stopped by gpusched stop"
_FORCED: Final = "stopped by gpusched stop --kill; its supervisor did not obey and was killed"
_KILL_AGAIN_S: Final = 1.0
_KILL_PATIENCE_S: Final = 10.0  # one that can needs less, but on a full disk


def begin(state: DaemonState, job: Job, leases: Sequence[Lease]) -> None:
    """Note that a job is prepared and has taken `leases`; it is spawned once that is on disk."""
    started = time.time()
    held = of_job(leases, Path(job.run_dir), started)
    starting = msgspec.structs.replace(job, state=JobState.STARTING, started=started, message=None, leases=held)
    state.jobs.adopt(starting)
    state.prepared.append(job.id)


def spawn_prepared(state: DaemonState, now: float) -> None:
    """Start the guard of one job that is prepared and saved; the next one has the next turn: systemd takes time.

    All of them where they are only asked for, of a fork server.
    """
    _spawn_next(state, now)
    while state.prepared and state.starts.forks.is_ready:
        _spawn_next(state, now)


def _spawn_next(state: DaemonState, now: float) -> None:
    job_id = state.prepared.pop(0) if state.prepared else ""
    job = state.jobs.live.get(job_id)
    if job is None or job_id not in state.starts:
        return
    try:
        if not state.starts.spawn(job, now):
            state.changed()  # it no longer counts among those that are just starting
    except HostFault as error:
        if state.starts.cancel_start(job):
            _never_began(state, job, str(error), now)


def check_starts(state: DaemonState, now: float) -> None:
    """Take note of supervisors that have shown themselves, and of guards that ended or hang before that."""
    for job_id in state.starts.due_checks(now):
        state.contain(job_id, "the start", partial(_check_start, state, job_id, now))


def check_running(state: DaemonState, now: float) -> None:
    """Take note of jobs that have ended."""
    for job_id in state.watch.due_jobs(now):
        job = state.jobs.live.get(job_id)
        if job is None:
            state.watch.forget(job_id)
            continue
        if not state.contain(job_id, "the end", partial(_check_end, state, job, now)):
            state.watch.follow(job_id, None, now + _FAULT_PAUSE_S)


def launcher_exited(job: Job) -> bool:
    """Return whether the process is gone that waits for the job's turn, to start it in its own place."""
    return job.submission is not None and has_exited(job.submission.launcher)


def known_status(job: Job) -> JobStatus | None:
    """Return what the job's supervisor wrote; where that is gone, who it was when it was last seen."""
    status = current_status(job)
    if status is not None or job.state is not JobState.RUNNING or job.supervisor_pid is None:
        return status
    return msgspec.structs.replace(
        status_of(job),
        supervisor_pid=job.supervisor_pid,
        supervisor_start=job.supervisor_start,
        boot_id=job.boot_id,
    )


def running(job: Job, status: JobStatus) -> Job:
    """Return the job as one that runs under the supervisor that wrote this status."""
    return msgspec.structs.replace(
        job,
        state=JobState.RUNNING,
        supervisor_pid=status.supervisor_pid,
        supervisor_start=status.supervisor_start,
        boot_id=status.boot_id,
    )


def has_live_processes(job: Job, status: JobStatus) -> bool:
    """Return whether the guard or the supervisor of the job lives."""
    return JobDirectory(Path(job.run_dir)).is_guarded() or is_alive(status)


def cancel(state: DaemonState, job: Job, message: str) -> None:
    """End a job of which nothing runs, also a member of an array that has not begun."""
    stopped = msgspec.structs.replace(job, state=JobState.CANCELLED, message=message, ended=time.time(), held=False)
    state.jobs.adopt(msgspec.structs.replace(stopped, last=status_of(stopped)))
    state.forget(job.id)


def order_stop(state: DaemonState, job: Job, *, kill: bool) -> None:
    """Ask the supervisor of a job to stop it; its state must be on disk as asked to stop.

    One that has not shown itself is asked when it does; one that is gone has ended.
    """
    status = known_status(job)
    if status is None:
        return
    if kill:
        state.kill_by[job.id] = time.monotonic() + _KILL_PATIENCE_S
    with suppress(NotFound, HostFault):
        stop(status, STOPPED, kill=kill)


def force_kills(state: DaemonState, now: float) -> None:
    """Kill the supervisors that do not carry out a `stop --kill` and whose time for that is over: their guards kill."""
    for job_id, when in list(state.kill_by.items()):
        job = state.jobs.live.get(job_id)
        if job is None:
            del state.kill_by[job_id]
        elif now >= when:
            state.kill_by[job_id] = now + _KILL_AGAIN_S
            _kill_supervisor(state, job)


def _kill_supervisor(state: DaemonState, job: Job) -> None:
    """Kill the supervisor, and have the guard go on, which kills what is left: once may be too early."""
    status = known_status(job)
    if status is not None and status.supervisor_pid is not None and is_alive(status):
        guard = parent(status.supervisor_pid) or 0
        _LOG.warning("%s: its supervisor, process %d, does not kill it: it is killed", job.id, status.supervisor_pid)
        state.forced[job.id] = (guard, start_time(guard))
        _signal(status.supervisor_pid, signal.SIGKILL)
    guard, start = state.forced.get(job.id, (0, None))
    if guard > 1 and start is not None and start_time(guard) == start:
        _signal(guard, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def settle(state: DaemonState, job: Job, now: float) -> None:
    """Find out what has become of a job that was to start or that ran, and note it, whichever daemon started it.

    What a kill -9 leaves at each step of a start: see execution/prepare.py.
    """
    status, prepared = known_status(job), job.id in state.starts and not state.starts.unserved(job.id)
    if status is not None and has_live_processes(job, status):
        adopt_running(state, job, status, now)
    elif status is None and not state.starts.cancel_start(job):
        state.watch.forget(job.id)
        state.starts.wait_on(job.id, now)
    elif status is not None or job.state is JobState.RUNNING or has_begun(JobDirectory(Path(job.run_dir))):
        _ended(state, job, now)
    elif prepared:
        _never_began(state, job, _not_started(job), now)
    else:
        queue_again(state, job)


def adopt_running(state: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    """Watch over a job that runs, whether this daemon, an earlier one or another process started it."""
    state.watch.follow_up(job.id, status, now)
    state.starts.shown(job.id)
    if job != (seen := running(job, status)):
        state.jobs.change(seen)
    state.changed()
    if job.stop_asked:
        state.orders.append((job.id, state.kills.pop(job.id, False)))


def queue_again(state: DaemonState, job: Job) -> None:
    """Put a job back into the queue of which nothing was started."""
    if job.stop_asked:
        cancel(state, job, "stopped before it had started")
        return
    waits = msgspec.structs.replace(job, state=JobState.QUEUED, started=None, leases=())
    state.jobs.change(waits)
    state.changed()


def discard(job: Job) -> None:
    """Remove the directory of a job that was not taken in; nothing has been in it."""
    remove_tree(Path(job.run_dir))


def cancel_start(state: DaemonState, job: Job, now: float) -> bool:
    """Return whether a job that is starting could be kept from it: nothing of it runs, or ever will."""
    if not state.starts.cancel_start(job):
        return False
    if has_begun(JobDirectory(Path(job.run_dir))):
        state.watch.follow(job.id, None, now)
        return False
    return True


def _check_start(state: DaemonState, job_id: str, now: float) -> None:
    job = state.jobs.live[job_id]
    if current_status(job) is not None or state.starts.overdue(job_id, now) or launcher_exited(job):
        settle(state, job, now)


def _check_end(state: DaemonState, job: Job, now: float) -> None:
    status = known_status(job)
    if status is not None and has_live_processes(job, status):
        state.watch.follow_up(job.id, status, now)
    else:
        settle(state, job, now)


def _ended(state: DaemonState, job: Job, now: float) -> None:
    """Note how a job ended whose guard and supervisor are gone; it is lost if none of its attempt wrote that."""
    state.watch.forget(job.id)
    status = current_status(job)  # read after both are gone, so that it is the last word
    if status is None:  # a job that runs was seen, and what it wrote has been removed since
        message = _unread(job) if job.state is JobState.RUNNING else _not_started(job)
        status = msgspec.structs.replace(status_of(job), state=JobState.LOST, message=message, ended=time.time())
    else:
        status = state.meter.merged(whole(JobDirectory(Path(job.run_dir)), without_supervisor(status, time.time())))
        if status.state is JobState.LOST and job.id in state.forced:
            status = msgspec.structs.replace(status, state=JobState.CANCELLED, message=_FORCED)
    _finish(state, job, status, now)
    state.starts.shown(job.id)


def _unread(job: Job) -> str:
    try:
        read_current(job)
    except HostFault as error:
        return f"how it ended cannot be read: {error.message}"
    return f"how it ended cannot be read in {job.run_dir}"


def _never_began(state: DaemonState, job: Job, message: str, now: float) -> None:
    """Queue a job again of which nothing was started; a few times, with growing pauses, then it has failed."""
    failures = state.failures[job.id] = state.failures.get(job.id, 0) + 1
    if failures >= _MOST_FAILED_STARTS and not job.stop_asked:
        failed = msgspec.structs.replace(job, state=JobState.FAILED, message=message, ended=time.time())
        state.jobs.change(msgspec.structs.replace(failed, last=status_of(failed)))
        state.forget(job.id)
        return
    state.not_before[job.id] = now + _FIRST_PAUSE_S * 2 ** (failures - 1)
    queue_again(state, msgspec.structs.replace(job, message=message))


def _finish(state: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    """Write down the end of a job, or queue it again if it is to be run after a loss."""
    end = status.ended or time.time()
    if runs_again(job, status):
        _again(state, job, status, now)
        return
    started = job.started or status.started  # of a job that was found before its supervisor wrote anything
    last = msgspec.structs.replace(status, created=job.created, attempt=job.attempt, started=started)
    over = msgspec.structs.replace(
        job.unwatched(), state=status.state, started=started, ended=end, message=status.message, last=last
    )
    state.jobs.change(over)
    state.expectations.note_end(over)
    state.left_sockets.add(job_socket(state.settings, Path(job.run_dir)))
    state.forget(job.id)


def _again(state: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    ran_s = time.time() - (job.started or 0.0)
    row = state.losses[job.id] = 0 if ran_s > _STABLE_S else state.losses.get(job.id, 0) + 1
    state.not_before[job.id] = now + (min(_FIRST_PAUSE_S * 2**row, _LONGEST_PAUSE_S) if row else 0.0)
    message = f"attempt {job.attempt} ended {status.state}: {status.message or 'for an unknown reason'}"
    waits = msgspec.structs.replace(
        job.unwatched(),
        state=JobState.QUEUED,
        attempt=job.attempt + 1,
        started=None,
        message=message,
        promised=None,
    )
    state.meter.forget(job.id)  # attempts of replicas are counted from that of the job on
    state.idleness.forget(job.id)
    state.jobs.change(waits)
    state.changed()


def _not_started(job: Job) -> str:
    directory = JobDirectory(Path(job.run_dir))
    attached = job.submission is not None and job.submission.launcher is not None
    if attached and not last_lines(directory.supervisor_log, 1):
        return "its turn came, and the command that asked for it did not take it"
    return f"the supervisor did not start: {why_not_started(directory)}"
