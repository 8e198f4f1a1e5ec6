"""The guard: a small process above the supervisor that sees that no process outlives it, and that no job runs twice.

It starts the supervisor only if the attempt that it was started for is still wanted (guard.lock holds its nonce) and
the job's lease is still granted; then it holds both, and the supervisor with it, until no process of the job is left.

The supervisor dies, however: the guard, a subreaper, kills every process below itself and calls the job lost. The guard
dies: the supervisor gets GUARD_GONE and ends the job. Both die at once: the kernel kills each replica (PDEATHSIG); only
what replicas forked stays. The guard keeps to what the interpreter has loaded: it must not import the rest of gpusched
before it has to.
"""

import os
import signal
import sys

from gpusched.filelock import lock
from gpusched.regular_files import open_regular, read_regular
from gpusched.supervisor.grant import STREAMS, GrantError, LockHeldError, take_over
from gpusched.supervisor.kernel import GUARD_GONE, become_subreaper, inherited, kill_descendants, set_death_signal
from gpusched.supervisor.own_daemon import daemon_of

__all__ = ["BEGUN", "guard"]

BEGUN = b"begun "
"""What stands before the nonce in guard.lock from the moment on in which its attempt can have started something."""

_FORWARDED = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*_FORWARDED, signal.SIGCHLD, signal.SIGHUP)
_PATIENCE_S = 5.0
_LAST_PATIENCE_S = 60.0
_LOCK_PATIENCE_S = 20.0
_NOT_STARTED = 5
_MOST_NONCE = 200
_MOST_ENVIRONMENT = 64 << 20


def guard(path: str, nonce: str, *, attached: bool = False, environment: bool = False) -> int:
    """Run the attempt `nonce` of the job in the directory `path` in a child process; return 0 if the job succeeded.

    It leads a session of its own afterwards, where it may (setsid(2)), and so it is out of reach of a terminal; if
    `attached` only a process group. With `environment` the job's is what the file `environ` in the directory holds.
    """
    _stand_apart(attached=attached)
    try:
        turn = _claim(path, nonce)
        lease = take_over(f"{path}/lease", _LOCK_PATIENCE_S)
        if environment:
            _take_environment(f"{path}/environ")
        os.pwrite(turn, BEGUN + nonce.encode(), 0)
        os.fsync(turn)  # after a power failure too, what may have run must not look as if it never had
    except (GrantError, LockHeldError, OSError) as error:
        print(f"nothing is started: {error}", file=sys.stderr)
        return _NOT_STARTED
    become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller that ignores it would leave nothing to wait for
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_WATCHED, GUARD_GONE))  # the supervisor unblocks when it has handlers
    me = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        return _supervise(path, me, attached=attached)
    if attached:
        for descriptor in (*STREAMS, *inherited()):  # who reads the command's output waits for an end
            os.close(descriptor)
    status = _watch(supervisor)
    daemon = daemon_of(path)
    gone = kill_descendants(_PATIENCE_S, daemon)
    _last_word(path, supervisor, status)
    if not gone:
        kill_descendants(_LAST_PATIENCE_S, daemon)
    if lease is not None:
        _drop(lease[0])
    return 0 if status == 0 else 1


def _stand_apart(*, attached: bool) -> None:
    """Leave the caller's group, and keep nothing open that it had open, since somebody may wait for its end.

    What it had beyond its streams is for an attached command, such as what a shell calls /dev/fd/63.
    """
    for descriptor in STREAMS if attached else inherited():
        if attached:
            os.set_inheritable(descriptor, False)
        else:
            os.close(descriptor)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0) if attached else os.setsid()


def _claim(path: str, nonce: str) -> int:
    """Return a descriptor that holds guard.lock until this process and the supervisor have ended.

    Raises GrantError if somebody else has it or wants no attempt of this nonce any more, and OSError.
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
    """Remove the lease's file; without it nobody has to find out that it is not held any more."""
    try:
        os.unlink(lease)  # noqa: PTH108
    except OSError as error:
        print(error, file=sys.stderr)


def _supervise(path: str, me: int, *, attached: bool) -> int:
    if not attached:  # who leads a group cannot leave the session, as the supervisor of an attached command does
        os.setpgid(0, 0)  # a signal to the guard's group reaches the supervisor once: from the guard
    set_death_signal(GUARD_GONE)
    from pathlib import Path

    from gpusched.errors import GpuschedError
    from gpusched.model.status import JobState
    from gpusched.supervisor.supervise import supervise

    try:
        return 0 if supervise(Path(path), me) is JobState.SUCCEEDED else 1
    except GpuschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _watch(supervisor: int) -> int:
    """Pass on requests to stop until the supervisor has ended; return its wait status."""
    while True:
        number = signal.sigwait(_WATCHED)
        if number in _FORWARDED:
            os.kill(supervisor, signal.SIGTERM)
        pid = -1
        while pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == supervisor:
                return status


def _last_word(path: str, supervisor: int, status: int) -> None:
    """Call the job lost if its supervisor did not say how it ended."""
    import time
    from pathlib import Path

    from gpusched.errors import HostFault
    from gpusched.model.status import JOB_TERMINAL
    from gpusched.supervisor.jobdir import JobDirectory, lost

    code = os.waitstatus_to_exitcode(status)
    how = f"with code {code}" if code >= 0 else f"by signal {-code}"
    directory = JobDirectory(Path(path))
    try:
        said = directory.read_status()
        if said is not None and said.state not in JOB_TERMINAL:
            message = f"the supervisor, process {supervisor}, ended unexpectedly {how}"
            directory.write_status(lost(said, message, time.time()))
            directory.append_events([{"time": time.time(), "subject": "job", "after": "lost", "message": message}])
            directory.clear_tmp()
    except (HostFault, OSError) as error:
        print(error, file=sys.stderr)
