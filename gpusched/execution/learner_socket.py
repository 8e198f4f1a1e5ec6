"""The socket of a job's learner: where it lies, and how what a killed learner left of it goes with the job."""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory

__all__ = ["remove_own_socket", "remove_socket", "socket_name"]

_IPC: Final = "ipc://"


def socket_name(directory: Path) -> str:
    """Return the name of the socket of the job in `directory`; two state directories may both have a snake-1."""
    mark = hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]
    return f"{directory.name}-{mark}.sock"


def remove_own_socket(directory: JobDirectory) -> None:
    """Remove the socket that the job's spec names; see remove_socket. A job can write its spec: no other name goes."""
    try:
        spec = directory.read_spec()
    except HostFault:
        return
    for endpoint in {one.env.get("GPUSCHED_ENDPOINT", "") for one in spec.replicas}:
        path = Path(endpoint.removeprefix(_IPC))
        if endpoint.startswith(_IPC) and path.name == socket_name(directory.path):
            remove_socket(path)


def remove_socket(path: Path) -> bool:
    """Remove a learner's socket and its lock file; return False while a process holds it, as a dying learner does.

    No process of the job may start any more: a learner that asks for the lock at this moment would be refused. What
    cannot be removed, as in a directory that is read-only, stays.
    """
    lock = path.with_name(f"{path.name}.lock")
    if not os.path.lexists(path) and not os.path.lexists(lock):
        return True
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            if os.fstat(descriptor).st_ino == lock.lstat().st_ino:  # else another process has removed it before
                lock.unlink()
        finally:
            os.close(descriptor)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
