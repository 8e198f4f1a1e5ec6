"""guard.lock of a job: the nonce of the attempt that may start, locked while a guard of the job lives.

The guard imports this before anything else: it must stay small.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.linux.file_locks import lock
from gpusched.linux.regular_files import open_regular, read_regular

TYPE_CHECKING = False  # without typing, which takes the guard's memory
if TYPE_CHECKING:
    from gpusched.execution.directory import JobDirectory

__all__ = ["BEGUN", "guard_lock", "has_begun", "read_nonce"]

BEGUN = b"begun "
"""What stands before the nonce from the moment on in which its attempt can have started something."""

_MOST_NONCE = 4096


@contextmanager
def guard_lock(directory: "JobDirectory") -> Iterator[int | None]:
    """Hold the job's guard.lock as a guard would; None if a guard has it."""
    descriptor = open_regular(directory.guard_lock, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor if lock(descriptor, 0) else None
    finally:
        os.close(descriptor)


def has_begun(directory: "JobDirectory") -> bool:
    """Return whether a guard took the attempt that was prepared last: what it starts may have been started.

    It did where guard.lock is no file of ours: only what it started can have put something else there.
    """
    return _read_lock(directory).startswith(BEGUN)


def read_nonce(directory: "JobDirectory") -> str:
    """Return the nonce of the attempt that may start; an empty text if there is none, or if it has begun."""
    content = _read_lock(directory)
    return "" if content.startswith(BEGUN) else content.decode(errors="replace")


def _read_lock(directory: "JobDirectory") -> bytes:
    try:
        return read_regular(directory.guard_lock, _MOST_NONCE)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError:
        return BEGUN
