"""What ps and /proc show of a process that became another program without exec: its name, arguments, environment.

setproctitle (PyPI) is no substitute: it sets one text as the title, and has nothing for the environment.
"""

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import Final

__all__ = ["show_as"]

_PR_SET_NAME: Final = 15  # prctl(2), linux/prctl.h
_PR_SET_MM: Final = 35
_PR_SET_MM_MAP: Final = 14
_NO_CHANGE: Final = 0xFFFFFFFF
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.sbrk.restype = ctypes.c_void_p
_shown: list[mmap.mmap] = []  # the kernel reads it as long as the process lives


def show_as(argv: Sequence[bytes], env: Sequence[tuple[bytes, bytes]]) -> bool:
    """Have /proc/PID/cmdline, environ and comm show `argv` and `env`; return whether the first two do.

    They lie in another mapping then. Kernels without CONFIG_CHECKPOINT_RESTORE cannot, and go on showing what
    the process was started as (PR_SET_MM_MAP of PR_SET_MM(2const)).
    """
    name = ctypes.create_string_buffer(argv[0].rpartition(b"/")[2][:15])
    _LIBC.prctl(_PR_SET_NAME, name, 0, 0, 0)
    arguments = b"".join(word + b"\0" for word in argv)
    variables = b"".join(name + b"=" + value + b"\0" for name, value in env)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # of shared memory the kernel shows nothing
    memory = mmap.mmap(-1, len(arguments) + len(variables) + 1, private)
    memory.write(arguments + variables)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = start + len(arguments)
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        fields = [b"", b"", b"", *file.read().rpartition(b")")[2].split()]  # numbered from 1, as proc(5) does
    code_start, code_end, stack = (int(fields[number]) for number in (26, 27, 28))
    data_start, data_end, heap_start = (int(fields[number]) for number in (45, 46, 47))
    heap_end = _LIBC.sbrk(ctypes.c_long(0))
    layout = (code_start, code_end, data_start, data_end, heap_start, heap_end, stack)
    content = struct.pack("=12Q2I", *layout, start, end, end, end + len(variables), 0, 0, _NO_CHANGE)
    block = ctypes.create_string_buffer(content, len(content))
    arguments_of_call = (ctypes.c_ulong(_PR_SET_MM_MAP), block, ctypes.c_ulong(len(content)), ctypes.c_ulong(0))
    if _LIBC.prctl(_PR_SET_MM, *arguments_of_call) != 0:
        return False
    _shown.append(memory)
    return True
