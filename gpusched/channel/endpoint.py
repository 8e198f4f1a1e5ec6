"""Where the two sides meet: what an endpoint may be, and how a learner makes sure that it is the only one there.

What a killed learner left at an ipc path is removed before the bind, so a lock file beside the socket is held for as
long as the learner lives. The kernel drops the lock however the learner ends, as soon as the processes that
it forked without an exec have ended too.
"""

import fcntl
import ipaddress
import os
import stat
from pathlib import Path

from gpusched.environment import LONGEST_SOCKET_PATH
from gpusched.errors import ChannelError, HostFault, UsageError
from gpusched.linux.files import make_private

__all__ = ["Claim", "check_endpoint", "where_to_bind"]


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


class Claim:
    """The right of one learner to one ipc path, from construction to release().

    Raises ChannelError when another learner holds it, UsageError when the path or its directory cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bound = False
        self._lock_path = path.with_name(path.name + ".lock")
        _private_directory(path.parent)
        self._descriptor = self._lock()
        try:
            _remove_stale_socket(path)
        except BaseException:
            self.release()
            raise

    def secure(self) -> None:
        """Let only this user connect to the socket that was bound now, whatever the umask was."""
        self._bound = True
        self._path.chmod(0o600)

    def release(self) -> None:
        """Remove the socket and the lock file, and let the lock go; safe to call twice."""
        if self._descriptor >= 0:
            if self._bound:
                self._path.unlink(missing_ok=True)
            self._lock_path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> int:
        while True:
            descriptor = self._open_locked()
            try:
                # The former holder removed it while this one waited here: then this lock is on a file that is gone.
                if os.fstat(descriptor).st_ino == self._lock_path.stat().st_ino:
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def _open_locked(self) -> int:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._lock_path, flags, 0o600)
        except OSError as error:
            raise HostFault(f"{self._lock_path}: {error.strerror}", "make its directory writable") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise ChannelError(
                f"another learner holds ipc://{self._path}", "stop that job, or give this learner another endpoint"
            ) from None
        return descriptor


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
    path.unlink()
