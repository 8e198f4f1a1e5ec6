"""The guard: a small process above the supervisor that does nothing but to see that no process outlives it.

The supervisor dies, however: the guard, a subreaper, kills every process below itself and calls the job lost. The guard
dies: the supervisor gets GUARD_GONE and ends the job. Both die at once: the kernel kills each replica (PDEATHSIG); only
what replicas forked stays. The guard keeps to what the interpreter has loaded: it must not import the rest of gpusched
before it has to.
"""

import os
import signal
import sys

from gpusched.supervisor.kernel import GUARD_GONE, become_subreaper, kill_descendants, set_death_signal

__all__ = ["guard"]

_FORWARDED = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*_FORWARDED, signal.SIGCHLD, signal.SIGHUP)
_PATIENCE_S = 5.0
_LAST_PATIENCE_S = 60.0


def guard(path: str) -> int:
    """Run the job in the directory `path` in a child process and return the exit code: 0 if the job succeeded.

    It leads a session of its own afterwards, where it may (setsid(2)), and so it is out of reach of a terminal.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller that ignores it would leave nothing to wait for
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_WATCHED, GUARD_GONE))  # the supervisor unblocks when it has handlers
    me = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        return _supervise(path, me)
    status = _watch(supervisor)
    gone = kill_descendants(_PATIENCE_S)
    _last_word(path, supervisor, status)
    if not gone:
        kill_descendants(_LAST_PATIENCE_S)
    return 0 if status == 0 else 1


def _supervise(path: str, me: int) -> int:
    os.setpgid(0, 0)  # a signal to the guard's group reaches the supervisor once: from the guard
    set_death_signal(GUARD_GONE)
    from pathlib import Path

    from gpusched.errors import GpuschedError
    from gpusched.model.status import JobState
    from gpusched.supervisor.runner import supervise

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
