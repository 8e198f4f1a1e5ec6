"""Where the two sides meet: what an endpoint may be, and how a learner makes sure that it is the only one there.

What a killed learner left at an ipc path is removed before the bind. It is left if the kernel lets a connection in: the
learner lives, or a process that it forked without an exec.
"""

import fcntl
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from gpusched.environment import LONGEST_SOCKET_PATH
from gpusched.errors import ChannelError, HostFault, UsageError
from gpusched.linux.files import make_private
from gpusched.linux.sockets import is_listened_at

__all__ = ["bind_socket", "check_endpoint", "where_to_bind"]

_BACKLOG: Final = 1024


def where_to_bind(endpoint: str, listen: str | None, *, secured: bool) -> tuple[Path | None, str | None]:
    """Return where a learner binds a socket of this host, and its address of a network; one of them may be None.

    `secured`: there are keys. Raises UsageError for what cannot be.
    """
    path = check_endpoint(endpoint, secured=secured)
    if path is None and listen is not None:
        raise UsageError(f"{endpoint} and {listen} are both of a network", "give one of them, or an ipc endpoint")
    if listen is not None and check_endpoint(listen, secured=secured) is not None:
        raise UsageError(f"{listen} is no address of a network", "listen at tcp://ADDRESS:PORT")
    return path, endpoint if path is None else listen


def check_endpoint(endpoint: str, *, secured: bool = False) -> Path | None:
    """Return the path of an ipc endpoint, None for a tcp one. Raises UsageError for anything else.

    `secured`: there are keys for it. Without them nothing goes over a network, where any host could read and forge it.
    """
    if endpoint.startswith("ipc:///"):
        path = Path(endpoint.removeprefix("ipc://"))
        length = len(os.fsencode(path))
        if length > LONGEST_SOCKET_PATH:
            raise UsageError(
                f"{endpoint}: a socket's path of {length} bytes is over the {LONGEST_SOCKET_PATH} of unix(7)",
                "set GPUSCHED_RUNTIME_DIR to a short directory such as /tmp/g",
            )
        return path
    if not endpoint.startswith("tcp://"):
        raise UsageError(f"{endpoint!r} is no endpoint", "use ipc:///absolute/path or tcp://127.0.0.1:PORT")
    if not secured and not _is_loopback(endpoint):
        raise UsageError(
            f"{endpoint}: this channel has no keys, so it stays on one host",
            "give it keys, or use tcp://127.0.0.1:PORT or ipc://",
        )
    return None


def _is_loopback(endpoint: str) -> bool:
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_socket(path: Path) -> socket.socket:
    """Return a socket that listens at `path`, where only this user can connect to it, in the place of a dead learner's.

    Raises ChannelError when another learner is there, UsageError when the path or its directory cannot be used,
    HostFault.
    """
    _private_directory(path.parent)
    try:
        with ExitStack() as undo, _locked(path.parent):
            _remove_stale_socket(path)
            door = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            door.bind(str(path))
            door.listen(_BACKLOG)
            path.chmod(0o600)  # whatever the umask was
            undo.pop_all()
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make its directory writable") from None
    return door


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one learner at a time find out whether a path is free, and take it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # NFS has no such lock of a directory
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _private_directory(directory: Path) -> None:
    try:
        make_private(directory)
        found = directory.stat()
    except OSError as error:
        raise HostFault(f"{directory}: {error.strerror}", "set GPUSCHED_RUNTIME_DIR to a directory of yours") from None
    if found.st_uid != os.getuid():
        raise UsageError(
            f"{directory} belongs to user {found.st_uid}, so others could reach a socket in it",
            "put the socket into a directory of yours",
        )
    if found.st_mode & 0o077:
        raise UsageError(f"{directory} is open to other users", "put the socket into a directory of mode 700")


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{path} is in the way: it is no socket", "move it away, or choose another endpoint")
    if is_listened_at(path):
        raise ChannelError(
            f"another learner holds ipc://{path}", "stop that job, or give this learner another endpoint"
        )
    path.unlink()
