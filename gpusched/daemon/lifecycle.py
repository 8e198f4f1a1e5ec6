"""The course of a job after its start: it shows itself, it ends, it never began, it is lost, it is queued again.

What is true lies in the job's directory and in the locks of its guard; the functions here read it and write it down.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gpusched.daemon.exit_watcher import guard_of
from gpusched.daemon.job import Job
from gpusched.daemon.job_status import current_status, read_current, runs_again, status_of
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, NotFound
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import has_begun
from gpusched.execution.hosts import with_joined
from gpusched.execution.lease_usage import of_job
from gpusched.execution.nodes import merge_node_status
from gpusched.execution.orders import StopOrder, give
from gpusched.execution.read_jobs import is_alive
from gpusched.execution.reports import last_progress
from gpusched.execution.start import guard_alive, stop
from gpusched.linux.files import remove_tree
from gpusched.linux.processes import boot_id, start_time
from gpusched.linux.regular_files import last_lines
from gpusched.model.lease import Lease
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, as_lost

__all__ = [
    "STOPPED",
    "adopt_running",
    "begin",
    "cancel",
    "cancel_start",
    "check_running",
    "check_starts",
    "discard",
    "ended",
    "has_live_processes",
    "known_status",
    "launcher_exited",
    "order_stop",
    "queue_again",
    "running",
    "spawn_prepared",
]

_MOST_FAILED_STARTS: Final = 3
_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 300.0
_STABLE_S: Final = 60.0
STOPPED: Final = "stopped by gpusched stop"
_FORCED: Final = "stopped by gpusched stop --kill; its supervisor did not obey and was killed"
_KILL_PATIENCE_S: Final = 10.0  # one that can needs less, but on a full disk


def begin(parts: DaemonState, job: Job, leases: Sequence[Lease]) -> None:
    """Note that a job is prepared and has taken `leases`; it is spawned once that is on disk."""
    started = time.time()
    held = of_job(leases, Path(job.run_dir), started)
    starting = msgspec.structs.replace(job, state=JobState.STARTING, started=started, message=None, leases=held)
    parts.book.change(starting)
    parts.prepared.append(job.id)


def spawn_prepared(parts: DaemonState, now: float) -> None:
    """Start the guard of one job that is prepared and saved; the next one has the next turn: systemd takes time."""
    job_id = parts.prepared.pop(0) if parts.prepared else ""
    job = parts.book.live.get(job_id)
    if job is None or job_id not in parts.starts:
        return
    try:
        parts.starts.spawn(job, now)
    except HostFault as error:
        if parts.starts.cancel_start(job):
            _never_began(parts, job, str(error), now)


def check_starts(parts: DaemonState, now: float) -> None:
    """Take note of supervisors that have shown themselves, and of guards that ended or hang before that."""
    for job_id in parts.starts.due_checks(now):
        parts.contain(job_id, "the start", partial(_check_start, parts, job_id, now))


def check_running(parts: DaemonState, now: float) -> None:
    """Take note of jobs that have ended."""
    for job_id in parts.watch.due_jobs(now):
        job = parts.book.live.get(job_id)
        if job is None:
            parts.watch.forget(job_id)
            continue
        if not parts.contain(job_id, "the end", partial(_check_end, parts, job, now)):
            parts.watch.follow(job_id, None, now)
            parts.watch.still_alive(job_id, now, guarded=True)


def launcher_exited(job: Job) -> bool:
    """Return whether the process is gone that waits for the job's turn, to start it in its own place."""
    launcher = job.submission.launcher if job.submission else None
    return launcher is not None and start_time(launcher.pid) != launcher.start


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


def has_live_processes(job: Job, status: JobStatus | None) -> bool:
    """Return whether the guard or the supervisor of the job lives."""
    return guard_alive(JobDirectory(Path(job.run_dir))) or (status is not None and is_alive(status))


def ended(parts: DaemonState, job: Job, now: float) -> None:
    """Note how a job ended whose guard and supervisor are gone."""
    parts.watch.forget(job.id)
    status = current_status(job)  # read after both are gone, so that it is the last word
    if status is None:
        _without_a_word(parts, job, now)
        return
    directory = JobDirectory(Path(job.run_dir))
    if status.state not in JOB_TERMINAL:
        rebooted = status.boot_id != boot_id()
        why = "the host was booted again while it ran" if rebooted else _gone(status)
        status = as_lost(status, why, time.time())
    if status.state is JobState.LOST and job.id in parts.forced:
        status = msgspec.structs.replace(status, state=JobState.CANCELLED, message=_FORCED)
    status = msgspec.structs.replace(merge_node_status(with_joined(status)), progress=last_progress(directory.progress))
    _finish(parts, job, status, now)


def cancel(parts: DaemonState, job: Job, message: str) -> None:
    """End a job of which nothing runs."""
    stopped = msgspec.structs.replace(job, state=JobState.CANCELLED, message=message, ended=time.time(), held=False)
    parts.book.change(msgspec.structs.replace(stopped, last=status_of(stopped)))
    parts.forget(job.id)


def order_stop(parts: DaemonState, job: Job, *, kill: bool) -> None:
    """Ask the supervisor of a job to stop it; its state must be on disk as asked to stop.

    One that has not shown itself is asked when it does; one that is gone has ended.
    """
    status = known_status(job)
    if status is None:
        return
    if kill:
        parts.kill_by[job.id] = time.monotonic() + _KILL_PATIENCE_S
    with suppress(NotFound):
        try:
            give(status, StopOrder(message=STOPPED, kill=kill))
        except HostFault:  # such as a full disk: a signal orders the same, but does not name its sender
            with suppress(HostFault):
                stop(status, kill=kill)


def adopt_running(parts: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    """Watch over a job that runs and that another process, or an earlier daemon, started."""
    parts.watch.follow(job.id, guard_of(status), now)
    if job.stop_asked:
        parts.orders.append((job.id, False))
    if job.state is not JobState.RUNNING:
        parts.book.change(running(job, status))


def queue_again(parts: DaemonState, job: Job) -> None:
    """Put a job back into the queue of which nothing was started."""
    if job.stop_asked:
        cancel(parts, job, "stopped before it had started")
        return
    waits = msgspec.structs.replace(job, state=JobState.QUEUED, started=None, leases=())
    parts.book.change(waits)
    parts.changed()


def discard(job: Job) -> None:
    """Remove the directory of a job that was not taken in; nothing has been in it."""
    remove_tree(Path(job.run_dir))


def cancel_start(parts: DaemonState, job: Job, now: float) -> bool:
    """Return whether a job that is starting could be kept from it: nothing of it runs, or ever will."""
    if not parts.starts.cancel_start(job):
        return False
    if has_begun(JobDirectory(Path(job.run_dir))):
        parts.watch.follow(job.id, None, now)
        return False
    return True


def _check_start(parts: DaemonState, job_id: str, now: float) -> None:
    job = parts.book.live[job_id]
    status = current_status(job)
    if status is not None:
        _shown(parts, job, status, now)
    elif parts.starts.overdue(job_id, now) or launcher_exited(job):
        _overdue(parts, job, now)


def _check_end(parts: DaemonState, job: Job, now: float) -> None:
    status = known_status(job)
    if has_live_processes(job, status):
        guarded = status is None or guard_of(status) is not None
        parts.watch.still_alive(job.id, now, guarded=guarded)
    else:
        ended(parts, job, now)


def _shown(parts: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    parts.watch.follow(job.id, guard_of(status), now)
    parts.starts.shown(job.id)
    parts.book.change(running(job, status))
    parts.changed()
    if job.stop_asked:
        parts.orders.append((job.id, parts.kills.pop(job.id, False)))


def _overdue(parts: DaemonState, job: Job, now: float) -> None:
    """Decide about a job that did not show itself in time, or whose guard has ended: see start.call_off."""
    directory = JobDirectory(Path(job.run_dir))
    if not parts.starts.cancel_start(job):
        parts.starts.wait_on(job.id, now)
    elif has_begun(directory):
        ended(parts, job, now)
    else:
        _never_began(parts, job, _not_started(job), now)


def _without_a_word(parts: DaemonState, job: Job, now: float) -> None:
    """Note the end of a job of which no status can be read: lost if it can have started something."""
    directory = JobDirectory(Path(job.run_dir))
    ran = job.state is JobState.RUNNING  # so it was seen, and what it wrote has been removed since
    message = _unread(job) if ran else _not_started(job)
    if ran or has_begun(directory):
        bare = msgspec.structs.replace(status_of(job), state=JobState.LOST, message=message, ended=time.time())
        _finish(parts, job, bare, now)
    else:
        _never_began(parts, job, message, now)


def _unread(job: Job) -> str:
    try:
        read_current(job)
    except HostFault as error:
        return f"how it ended cannot be read: {error.message}"
    return f"how it ended cannot be read in {job.run_dir}"


def _never_began(parts: DaemonState, job: Job, message: str, now: float) -> None:
    """Queue a job again of which nothing was started; a few times, with growing pauses, then it has failed."""
    failures = parts.failures[job.id] = parts.failures.get(job.id, 0) + 1
    if failures >= _MOST_FAILED_STARTS and not job.stop_asked:
        failed = msgspec.structs.replace(job, state=JobState.FAILED, message=message, ended=time.time())
        parts.book.change(msgspec.structs.replace(failed, last=status_of(failed)))
        parts.forget(job.id)
        return
    parts.not_before[job.id] = now + _FIRST_PAUSE_S * 2 ** (failures - 1)
    queue_again(parts, msgspec.structs.replace(job, message=message))


def _finish(parts: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    """Write down the end of a job, or queue it again if it is to be run after a loss."""
    end = status.ended or time.time()
    if runs_again(job, status):
        _again(parts, job, status, now)
        return
    started = job.started or status.started  # of a job that was found before its supervisor wrote anything
    last = msgspec.structs.replace(status, created=job.created, attempt=job.attempt, started=started)
    over = msgspec.structs.replace(
        job, state=status.state, started=started, ended=end, message=status.message, leases=(), last=last
    )
    parts.book.change(over)
    parts.forget(job.id)


def _again(parts: DaemonState, job: Job, status: JobStatus, now: float) -> None:
    ran_s = time.time() - (job.started or 0.0)
    row = parts.losses[job.id] = 0 if ran_s > _STABLE_S else parts.losses.get(job.id, 0) + 1
    parts.not_before[job.id] = now + (min(_FIRST_PAUSE_S * 2**row, _LONGEST_PAUSE_S) if row else 0.0)
    message = f"attempt {job.attempt} ended {status.state}: {status.message or 'for an unknown reason'}"
    waits = msgspec.structs.replace(
        job, state=JobState.QUEUED, attempt=job.attempt + 1, started=None, message=message, leases=(), last=None
    )
    parts.book.change(waits)
    parts.changed()


def _gone(status: JobStatus) -> str:
    return f"its supervisor, process {status.supervisor_pid}, is gone without a word"


def _not_started(job: Job) -> str:
    lines = last_lines(JobDirectory(Path(job.run_dir)).supervisor_log, 1)
    if not lines and job.submission is not None and job.submission.launcher is not None:
        return "its turn came, and the command that asked for it did not take it"
    lines = lines or ["it ended and wrote nothing"]
    return f"the supervisor did not start: {lines[0]}"
