"""The guard's side of a lease: which process may plan and commit now, and how a job takes over what was committed.

A lease file (directory.py) lives as long as a process holds a lock on its first two bytes: COMMITTER, its maker,
until the job has it; GUARD, the guard and the supervisor of the job. The guard lives for hours, so it needs nothing
here but what the interpreter brings.
"""

import fcntl
import os
import stat
import time

from gpusched.linux.file_locks import held, lock
from gpusched.linux.regular_files import open_regular

__all__ = [
    "COMMITTER",
    "ENDING",
    "GUARD",
    "PID_AT",
    "PID_WIDTH",
    "UNFINISHED",
    "GrantError",
    "LockHeldError",
    "lock_directory",
    "take_over",
]

COMMITTER = 0
GUARD = 1
PID_AT = len('{"guard":')
"""Where in a lease file the guard's pid stands, PID_WIDTH bytes wide."""
PID_WIDTH = 10
ENDING = ".lease"
UNFINISHED = ".new"

_POLL_S = 0.005


class GrantError(Exception):
    """The lease of a job is not there to be taken over: nothing may be started on it."""


class LockHeldError(Exception):
    """Another process holds the lock of a lease directory; `pid` names it, 0 where the kernel does not show it."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(f"{path} is held by " + (f"process {pid}" if pid > 0 else "another process"))
        self.path, self.pid = path, pid


def lock_directory(directory: str, patience_s: float) -> int:
    """Return a descriptor that holds the lock of a lease directory until it is closed.

    All users lock one file that belongs to the first of them. Raises LockHeldError after `patience_s`, OSError.
    """
    path = os.path.join(directory, "lock")  # noqa: PTH118 (pathlib is heavy)
    deadline = time.monotonic() + patience_s
    while True:
        late = time.monotonic() >= deadline
        try:
            descriptor = _open_lock(path)
        except PermissionError:  # its maker has not opened it to all users yet
            if late:
                raise
            time.sleep(_POLL_S)
            continue
        if _is_locked_now(descriptor, path):
            return descriptor
        try:
            if late:
                raise LockHeldError(path, _holder(descriptor))
            time.sleep(_POLL_S)
        finally:
            os.close(descriptor)


def take_over(link: str, patience_s: float) -> tuple[str, int] | None:
    """Make the lease that the symbolic link names one of this process and its children; None if there is no link.

    Return the path of the lease and the descriptor that holds it until all its copies are closed. Raises GrantError if
    the lease is not held for this job any more: others may have planned on it since. Raises LockHeldError, OSError.
    """
    try:
        path = os.path.realpath(os.readlink(link))  # noqa: PTH115
    except FileNotFoundError:
        return None
    turn = lock_directory(os.path.dirname(path), patience_s)  # noqa: PTH120
    try:
        descriptor = _replaced(path, _granted(path))
    finally:
        os.close(turn)
    return path, descriptor


def _granted(path: str) -> bytes:
    """Return the content of a lease file that its committer holds and no guard. Raises GrantError, OSError."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        raise GrantError(f"{path} is gone: its committer has ended or has withdrawn it") from None
    try:
        if held(descriptor, GUARD, 1):
            raise GrantError(f"{path} is held by another guard")
        if not held(descriptor, COMMITTER, 1):
            raise GrantError(f"{path} has lapsed: its committer has ended")
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _replaced(path: str, content: bytes) -> int:
    """Put a file in a lease's place that the caller has held as its guard before others could open it; return its hold.

    The committer's file would not do: a reader of a file may lock it for reading, which would keep the guard from it.
    """
    new = f"{path.removesuffix(ENDING)}-{os.urandom(4).hex()}{UNFINISHED}"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        lock(descriptor, GUARD)
        while content:
            content = content[os.write(descriptor, content) :]
        os.pwrite(descriptor, b"%*d" % (PID_WIDTH, os.getpid()), PID_AT)
        os.fchmod(descriptor, 0o644)
        os.rename(new, path)  # noqa: PTH104
    except BaseException:
        os.unlink(new)  # noqa: PTH108
        os.close(descriptor)
        raise
    return descriptor


def _open_lock(path: str) -> int:
    """Open the lock file; make it if there is none. In a sticky directory O_CREAT must not meet another's file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return _open_lock(path)
        os.fchmod(descriptor, 0o666)  # whatever the umask is
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no plain file", path)
    return descriptor


def _is_locked_now(descriptor: int, path: str) -> bool:
    """Lock the file if it is free and still the one that others will find."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _holder(descriptor: int) -> int:
    """Return the process that holds a flock on the open file, as /proc/locks shows it (proc_locks(5)), else 0."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        with open("/proc/locks", encoding="ascii") as file:  # noqa: PTH123 (pathlib is heavy)
            fields = [line.split() for line in file]
    except OSError:
        return 0
    found = [each[4] for each in fields if each[1] == "FLOCK" and each[5].rpartition(":")[2] == inode]
    return int(found[0]) if found else 0
