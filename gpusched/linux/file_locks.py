"""Locks on bytes of a file that end with their holder, however it ends: open file description locks (fcntl(2)).

They belong to the open file, so a forked child shares them; they need the file open for writing, so only its
owner can hold one on a file of mode 0644; and asking whether one is held takes nothing. The guard imports this module,
so it needs nothing but what the interpreter brings.
"""

import errno
import fcntl
import os
import struct

from gpusched.linux.regular_files import open_regular

__all__ = ["held", "is_held", "lock"]

_FLOCK = struct.Struct("hh4xqqi4x")  # l_type, l_whence, l_start, l_len, l_pid on 64-bit Linux
_BLOCKED = (errno.EAGAIN, errno.EACCES)
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def lock(descriptor: int, byte: int) -> bool:
    """Lock one byte of a file that is open for writing; return False at once if another open file holds it.

    It is held until all copies of the descriptor are closed. Raises OSError.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in _BLOCKED:
            return False
        raise
    return True


def held(descriptor: int, first: int, count: int) -> bool:
    """Return whether another open file holds a lock on any of `count` bytes from `first` on. Raises OSError."""
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, first, count, 0)
    found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    return bool(found[0] != fcntl.F_UNLCK)


def is_held(path: str | os.PathLike[str]) -> bool:
    """Return whether a process holds a lock on the first byte of the file `path`, which there may not be.

    It is so too where this process can open no more files just now: to take a living holder for a dead one is worse.
    """
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        return error.errno in _OUT_OF_FILES
    try:
        return held(descriptor, 0, 1)
    finally:
        os.close(descriptor)
