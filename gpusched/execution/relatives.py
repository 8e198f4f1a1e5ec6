"""Other processes of gpusched around a job and inside it, known by their arguments.

The daemon that a job has started, and its jobs, must outlive it: what ends the rest of a job leaves them alone.

A command inside a job starts the daemon where none runs. It is below the job's supervisor then, and so are the jobs
that it starts, and their guards still are when it has ended. The guard imports this module, so it needs nothing but
what the interpreter brings.
"""

import os
from collections.abc import Callable

from gpusched.linux.file_locks import is_held
from gpusched.linux.processes import Process, parent
from gpusched.linux.regular_files import read_regular

__all__ = ["is_daemon", "is_supervisor_above", "outliving"]

_MODULE = b"gpusched.daemon"
_SUPERVISOR = b"gpusched.supervisor"
_MOST_BYTES = 8192


def outliving(directory: str) -> Callable[[Process], bool]:
    """Return what decides whether a process outlives the job in `directory`: its daemon, or another job's guard.

    The other job must be of the same state directory, and no command that is attached to a process of this one.
    """
    daemon, own = _daemon_of(directory), os.fsencode(os.path.abspath(directory))  # noqa: PTH100

    def outlives(one: Process) -> bool:
        return one.pid == daemon or (one.pid == one.session and _is_other_guard(one.pid, own))

    return outlives


def is_supervisor_above(pid: int) -> bool:
    """Return whether the process `pid` is a job's supervisor, and this process is below it."""
    above: int | None = os.getpid()
    while above and above != pid:
        above = parent(above)
    return above == pid and _SUPERVISOR in _argv(pid)


def _is_other_guard(pid: int, own: bytes) -> bool:
    """Return whether a process is the guard of another detached job beside `own`: by its arguments, and its lock."""
    argv = _argv(pid)
    if _SUPERVISOR not in argv[:-3]:
        return False
    options, (directory, nonce) = argv[argv.index(_SUPERVISOR) + 1 : -3], argv[-3:-1]
    beside = directory != own and os.path.dirname(directory) == os.path.dirname(own)  # noqa: PTH120
    if not beside or any(word.startswith(b"--attached") for word in options):
        return False
    lock = os.fsdecode(directory + b"/guard.lock")
    try:
        return is_held(lock) and read_regular(lock, _MOST_BYTES).endswith(b" " + nonce)
    except OSError:
        return False


def _argv(pid: int) -> list[bytes]:
    """Return the arguments of a process, an empty one behind them; only that of one that is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 (pathlib is heavy)
            return file.read(_MOST_BYTES).split(b"\0")
    except OSError:
        return [b""]


def _daemon_of(directory: str) -> int | None:
    """Return the pid of the daemon to whose state directory a job's `directory` belongs; None if there is none."""
    path = f"{directory}/../../daemon.lock"
    try:
        pid = int(read_regular(path, _MOST_BYTES)) if is_held(path) else 0
    except (OSError, ValueError):
        return None
    return pid if is_daemon(pid) else None


def is_daemon(pid: int) -> bool:
    """Return whether a process is a daemon of gpusched, by its arguments: its pid may be another's by now."""
    return _MODULE in _argv(pid)
