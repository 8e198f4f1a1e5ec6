"""The guard: a small process above the supervisor that sees that no process outlives it, and that no job runs twice.

It starts the supervisor only if the attempt that it was started for is still wanted (guard.lock holds its nonce) and
the job's lease is still granted; then it holds both, and the supervisor with it, until no process of the job is left.

The supervisor dies, however: the guard, a subreaper, kills every process below itself and calls the job lost. The guard
dies: the supervisor gets GUARD_GONE and ends the job. Both die at once: the kernel kills each replica (PDEATHSIG); only
what replicas forked stays. The guard keeps to what the interpreter has loaded: it must not import the rest of gpusched
before it has to.
"""

import contextlib
import os
import signal
import sys

from gpusched.execution.guard_lock import BEGUN
from gpusched.leases.locks import GrantError, LockHeldError, take_over
from gpusched.linux.file_locks import lock
from gpusched.linux.processes import (
    GUARD_GONE,
    STOP_PASSED_ON,
    become_subreaper,
    inherited,
    set_death_signal,
    wake,
)
from gpusched.linux.regular_files import open_regular, read_regular
from gpusched.supervisor.leftovers import kill_leftovers

__all__ = ["guard"]

_FORWARDED = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*_FORWARDED, signal.SIGCHLD, signal.SIGHUP)
_LOCK_PATIENCE_S = 20.0
_NOT_STARTED = 5
_MOST_NONCE = 200
_MOST_ENVIRONMENT = 64 << 20


def guard(path: str, nonce: str, *, streams: tuple[int, int, int] | None = None, environment: bool = False) -> int:
    """Run the attempt `nonce` of the job in the directory `path` in a child process; return 0 if the job succeeded.

    It leads a session afterwards, and so it is out of reach of a terminal. `streams` are descriptors for an
    attached command, None for a job that is not attached. With `environment` the job's is what the file `environ` in
    the directory holds.
    """
    _stand_apart(streams)
    try:
        turn = _claim(path, nonce)
        lease = take_over(f"{path}/lease", _LOCK_PATIENCE_S)
        if environment:
            _take_environment(f"{path}/environ")
        os.pwrite(turn, BEGUN + nonce.encode(), 0)
        os.fsync(turn)  # after a power failure too, what may have run must not seem never to have run
    except (GrantError, LockHeldError, OSError) as error:
        print(f"nothing is started: {error}", file=sys.stderr)
        return _NOT_STARTED
    become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller that ignores it would leave nothing to wait for
    signal.pthread_sigmask(
        signal.SIG_BLOCK, (*_WATCHED, GUARD_GONE, STOP_PASSED_ON)
    )  # the supervisor unblocks when it has handlers
    me = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        return _supervise(path, me, streams)
    if streams is not None:
        _leave_session(supervisor)
        for descriptor in {*streams, *inherited()}:  # a reader of the command's output waits for an end
            os.close(descriptor)
    status = _watch(supervisor)
    gone = kill_leftovers(path)
    try:
        _mark_lost(path, supervisor, status)
    except Exception as error:  # noqa: BLE001 (such as of what it imports: what is left has to be killed all the same)
        _log(f"how it ended is not recorded: {error!r}")
    if not gone:
        _go_on_killing(path)
    _remove_socket(path)
    if lease is not None:
        _drop(lease[0])
    return 0 if status == 0 else 1


def _stand_apart(streams: tuple[int, int, int] | None) -> None:
    """Leave the caller's group, and keep nothing open that it had open, since another process may wait for its end.

    What it had beyond its streams is for an attached command, such as what a shell calls /dev/fd/63.
    """
    for descriptor in inherited() if streams is None else streams:
        if streams is None:
            os.close(descriptor)
        else:
            os.set_inheritable(descriptor, False)
    if os.getpgrp() != os.getpid():
        os.setsid() if streams is None else os.setpgid(0, 0)


def _leave_session(supervisor: int) -> None:
    """Leave the caller's session, in which the `supervisor` has to start the command before it leaves it as well.

    If the supervisor is killed, this process becomes the command's parent. In the command's session, but not in its
    group, it would be what keeps that group from being orphaned; its end, or the command's, would then have the kernel
    send SIGHUP and SIGCONT to the whole group, if any process of it is stopped (exit(3p), "orphaned process group").
    A group's leader cannot leave the session, nor while any process is in that group. So both go to a group that a
    third process leads, for a moment, in which the supervisor stays.
    """
    reader, writer = os.pipe()
    leader = os.fork()
    if leader == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        os.setpgid(leader, leader)
        with contextlib.suppress(OSError):  # it has just ended, or has left the session already
            os.setpgid(supervisor, leader)
        os.setpgid(0, leader)
        os.setsid()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(leader, 0)


def _claim(path: str, nonce: str) -> int:
    """Return a descriptor that holds guard.lock until this process and the supervisor have ended.

    Raises GrantError if another process has it or wants no attempt of this nonce any more, and OSError.
    """
    descriptor = open_regular(f"{path}/guard.lock", os.O_RDWR)
    if not lock(descriptor, 0):
        raise GrantError("another guard runs this job, or it is being called off")
    if not nonce or os.read(descriptor, _MOST_NONCE) != nonce.encode():
        raise GrantError("this attempt was called off, or it has been begun before")
    return descriptor


def _take_environment(path: str) -> None:
    entries = read_regular(path, _MOST_ENVIRONMENT).split(b"\0")
    os.unlink(path)  # noqa: PTH108
    os.environb.clear()
    for entry in entries:
        name, _, value = entry.partition(b"=")
        if name:
            os.environb[name] = value


def _drop(lease: str) -> None:
    """Remove the lease's file; then no reader has to find out that it is not held any more."""
    try:
        os.unlink(lease)  # noqa: PTH108
    except OSError as error:
        _log(str(error))


def _supervise(path: str, me: int, streams: tuple[int, int, int] | None) -> int:
    if streams is None:  # a group's leader cannot leave the session, as the supervisor of an attached command does
        os.setpgid(0, 0)  # a signal to the guard's group reaches the supervisor once: from the guard
    set_death_signal(GUARD_GONE)
    from pathlib import Path

    from gpusched.errors import GpuschedError
    from gpusched.execution.directory import JobDirectory
    from gpusched.model.status import JobState
    from gpusched.supervisor.runner import Runner

    try:
        return 0 if Runner(JobDirectory(Path(path)), me, streams).run() is JobState.SUCCEEDED else 1
    except GpuschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        wake(os.getpid())  # a job may have halted the guard, and now nothing else has it go on


def _watch(supervisor: int) -> int:
    """Pass on requests to stop until the supervisor has ended; return its wait status.

    One that is halted goes on at once: a job that does `kill -STOP $PPID` must not be able to outlast a stop.
    """
    reported = False
    while True:
        number = signal.sigwait(_WATCHED)
        if number in _FORWARDED:
            os.kill(supervisor, STOP_PASSED_ON)
        pid = -1
        while pid:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid != supervisor:
                continue
            if not os.WIFSTOPPED(status):
                return status
            os.kill(supervisor, signal.SIGCONT)
            if not reported:
                reported = True
                how = f"by signal {os.WSTOPSIG(status)}"
                _log(f"the supervisor, process {supervisor}, was halted {how}: it goes on")


def _go_on_killing(path: str) -> None:
    """Kill until no process is left, as long as it takes: until then the lease is held, which a device needs."""
    _log("some processes cannot be killed yet: the guard and the lease stay until they end")
    while not kill_leftovers(path):
        continue


def _log(text: str) -> None:
    """Write a line to the supervisor's log; a disk that is full must not end the guard before it has killed."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _remove_socket(path: str) -> None:
    """Remove what a killed learner left; a supervisor that ended by itself has done so."""
    from pathlib import Path

    from gpusched.execution.directory import JobDirectory
    from gpusched.execution.learner_socket import remove_own_socket

    remove_own_socket(JobDirectory(Path(path)))


def _mark_lost(path: str, supervisor: int, status: int) -> None:
    """Call the job lost if its supervisor did not record how it ended."""
    import time
    from pathlib import Path

    from gpusched.errors import HostFault
    from gpusched.execution.directory import JobDirectory
    from gpusched.model.status import JOB_TERMINAL, as_lost

    code = os.waitstatus_to_exitcode(status)
    how = f"with code {code}" if code >= 0 else f"by signal {-code}"
    directory = JobDirectory(Path(path))
    try:
        job = directory.read_status()
        if job is not None and job.state not in JOB_TERMINAL:
            message = f"the supervisor, process {supervisor}, ended unexpectedly {how}"
            directory.write_status(as_lost(job, message, time.time()))
            directory.append_events([{"time": time.time(), "subject": "job", "after": "lost", "message": message}])
            directory.clear_tmp()
    except (HostFault, OSError) as error:
        _log(str(error))
