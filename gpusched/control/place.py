"""Where the daemon listens: a socket in a directory that only this user can enter, and whether a process listens there.

It must not know the messages on the socket.
"""

import errno
import os
import stat
import struct
import zlib
from pathlib import Path

from gpusched.environment import LONGEST_SOCKET_PATH
from gpusched.errors import HostFault, UsageError
from gpusched.linux.file_locks import is_held
from gpusched.linux.files import make_private
from gpusched.settings import Settings

__all__ = ["control_socket", "is_locked", "listener", "private_directory"]

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED, socket(7)


def control_socket(settings: Settings) -> Path:
    """Return the path of the control socket; each state directory has its own daemon. Raises UsageError if too long."""
    mark = zlib.crc32(os.fsencode(settings.state_dir))  # hashlib takes 3 ms to import
    path = settings.runtime_dir / f"control-{mark:08x}.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise UsageError(
            f"{path}: a socket's path of {len(os.fsencode(path))} bytes is over the {LONGEST_SOCKET_PATH} of unix(7)",
            "set GPUSCHED_RUNTIME_DIR to a directory with a short path, such as /tmp/g",
        )
    return path


def private_directory(directory: Path) -> Path:
    """Make a directory that only this user can enter, and return it.

    Raises HostFault where it cannot be made, belongs to another user, or is open to others.
    """
    hint = "set GPUSCHED_RUNTIME_DIR to a directory of yours with mode 700"
    try:
        make_private(directory)
        found = directory.lstat()
    except OSError as error:
        raise HostFault(f"{directory}: {error.strerror}", hint) from None
    if not stat.S_ISDIR(found.st_mode):
        raise HostFault(f"{directory} is no directory", hint)
    if found.st_uid != os.getuid():
        raise HostFault(f"{directory} belongs to user {found.st_uid}, who could read the messages there", hint)
    if found.st_mode & 0o077:
        raise HostFault(f"{directory} is open to other users", hint)
    return directory


def is_locked(settings: Settings) -> bool:
    """Return whether there is a daemon, whether it can be reached (already, or still) or not."""
    return is_held(settings.state_dir / "daemon.lock")


def listener(path: Path) -> int | None:
    """Return the pid of the process that listens at a socket, 0 if it is too busy to answer, None if there is none.

    It asks the kernel, so it gets its answer from a process that hangs too. Raises HostFault if another user listens.
    """
    if not os.path.exists(path):  # noqa: PTH110 (it raises nothing: a user who may not read the directory has no daemon there)
        return None  # the usual case without a daemon, found without the import of socket
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(os.fspath(path))
        except BlockingIOError:  # the queue of connections is full
            return 0
        except OSError:
            return None
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    if user != os.getuid():
        raise HostFault(f"{path}: user {user} listens there", "set GPUSCHED_RUNTIME_DIR to a directory of yours")
    return int(pid) if not pid or _exists(pid) else None


def _exists(pid: int) -> bool:
    """Return whether a process is there: one that was killed amid a fork leaves its socket open in the child.

    The child of a daemon has closed it once it executes what it was forked for.
    """
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
