"""What processes use, read from /proc. Imports next to nothing: peers in other environments use it too."""

import contextlib
import time
from pathlib import Path
from typing import Final

from gpusched.linux.processes import descendants

__all__ = ["cpu_s", "memory_mb", "tree_pss_mb"]

_SCHED: Final = 2
"""CPUCLOCK_SCHED of Linux's posix-timers.h."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used so far, its ended threads too, exact to the nanosecond.

    It is the process's clock: clock_getcpuclockid(3), as the C library makes its number. Raises OSError if there is no
    such process.
    """
    return time.clock_gettime((~pid << 3) | _SCHED)


def memory_mb(pid: int) -> tuple[float, float]:
    """Return what a process has in memory, in MB: all of it (RSS), and its part of what is shared (PSS)."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        found[name] = int(size) * 1024 / 1e6
    return found["Rss:"], found["Pss:"]


def tree_pss_mb(root: int, *, itself: bool = True) -> float:
    """Return the memory in MB of all processes below `root`, and its own, with what they share counted once (PSS)."""
    total = 0.0
    for pid in [root] * itself + descendants(root):
        with contextlib.suppress(OSError, KeyError):  # it has ended meanwhile
            total += memory_mb(pid)[1]
    return total
