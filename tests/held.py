"""A process that is held still, whatever signals it gets."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

__all__ = ["held_still"]

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17  # of ptrace(2)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long


@contextmanager
def held_still(pid: int) -> Iterator[None]:
    """Hold a process as a debugger does: the SIGCONT that a guard gets when its supervisor ends does not free it."""
    if _LIBC.ptrace(_SEIZE, pid, None, None) != 0:
        pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    assert _LIBC.ptrace(_INTERRUPT, pid, None, None) == 0
    os.waitpid(pid, 0)
    try:
        yield
    finally:
        _LIBC.ptrace(_DETACH, pid, None, None)
