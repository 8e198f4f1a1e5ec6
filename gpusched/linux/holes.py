"""Holes in files, made where something is: they read as zeros and take no room on the disk (fallocate(2))."""

import ctypes
import errno
import os

__all__ = ["NoHolesError", "punch_hole"]

_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, fallocate(2)
_UNABLE = (errno.EOPNOTSUPP, errno.ENOSYS)
_FALLOCATE = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)  # a libc without it has no holes


class NoHolesError(OSError):
    """The file system of a file, or this libc, makes no holes."""


def punch_hole(descriptor: int, begin: int, end: int) -> None:
    """Give the room of the bytes from `begin` to `end` back; all others stay as they are and where they are.

    What is written to the file meanwhile, at its end, is neither lost nor held up. Raises NoHolesError, OSError.
    """
    if _FALLOCATE is None:
        raise NoHolesError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    offset, length = ctypes.c_int64(begin), ctypes.c_int64(end - begin)
    while _FALLOCATE(descriptor, _KEEP_SIZE_AND_PUNCH, offset, length) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise (NoHolesError if number in _UNABLE else OSError)(number, os.strerror(number))
