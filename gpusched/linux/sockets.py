"""Sockets of one host, in the file system."""

import errno
import os
import socket
from pathlib import Path

__all__ = ["is_listened_at"]


def is_listened_at(path: Path) -> bool:
    """Return whether a process has the socket at `path`, be it one that was forked off and does not know of it.

    It asks the kernel, so that it does not matter what that process does. One that may not be asked counts, too.
    Raises OSError where a path is too long, or no descriptor is left.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        found = asking.connect_ex(os.fspath(path))
    return found in {0, errno.EACCES, errno.EAGAIN}  # the last: too many wait to be accepted
