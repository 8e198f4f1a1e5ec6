"""Whether a process that ended with a code lacked memory: only the name of the error in its log distinguishes it."""

import re
from functools import cache
from typing import Final, Literal

from gpusched.frameworks.registry import frameworks

__all__ = ["memory_that_ran_out"]

_HOST: Final = re.compile(rb"^(?:[\w.]*[._])?(?:Array)?MemoryError\b", re.MULTILINE)  # as a traceback ends; NumPy's too


def memory_that_ran_out(output: bytes) -> Literal["device", "host"] | None:
    """Return whose memory the process lacked, as the end of its output shows; None if it lacked none."""
    if not output:  # most end without: no pattern has to be compiled for them
        return None
    if _device().search(output):
        return "device"
    return "host" if _HOST.search(output) else None


@cache
def _device() -> re.Pattern[bytes]:
    return re.compile(b"|".join(one.out_of_memory for one in frameworks() if one.out_of_memory))
