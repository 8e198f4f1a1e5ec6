"""The socket of a job's learner: where it lies, and how what a killed learner left of it goes with the job."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.linux.sockets import is_listened_at

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
    """Remove a learner's socket; return False while a process holds it, as a dying learner does.

    No process of the job may start any more. What cannot be removed, as in a directory that is read-only, stays.
    """
    with suppress(OSError):
        if is_listened_at(path):
            return False
        path.unlink()
    return True
