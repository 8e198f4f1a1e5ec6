"""How busy the host is, and how to make it so: a section beside one busy loop for each CPU."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.section import Goal, Section

__all__ = ["BUSY", "beside_busy_loops", "busy_part", "busy_words"]

BUSY: Final = 0.1
"""From this part of its CPU time on a host counts as busy."""

_LOOK_S: Final = 1.0
_IDLE: Final = (3, 4)  # idle and waiting for a disk, in the first line of /proc/stat; see proc(5)
_GUESTS: Final = slice(0, 8)  # what guests had is in user and nice as well


def busy_part(seconds: float = _LOOK_S) -> float:
    """Return the part of this host's CPU time, 0 to 1, that others take now, what a hypervisor steals included."""
    before = _ticks()
    time.sleep(seconds)
    spent = [after - earlier for earlier, after in zip(before, _ticks(), strict=True)]
    return 1 - sum(spent[number] for number in _IDLE) / max(1, sum(spent))


def _ticks() -> Sequence[int]:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    return [int(ticks) for ticks in first.split()[1:]][_GUESTS]


def busy_words(part: float) -> str:
    """Return in words how busy the host is."""
    state = "busy: what is measured now is marked so" if part >= BUSY else "idle"
    return f"This host is {state} (others take {part:.0%} of its CPU time)."


def beside_busy_loops(
    section: Section, rows: Sequence[str], goals: tuple[Goal, ...] = (), slower: float = 2.0
) -> Section:
    """Return a section that measures those rows of another one while each CPU has a busy loop to run, too.

    `slower`: how many times as long they take then. A quick look leaves them out.
    """
    chosen = tuple(row for row in section.rows if row.name in rows)
    part = slower * len(chosen) / len(section.rows)
    return replace(
        section,
        name=f"{section.name}_busy",
        title=f"{section.title}, beside a busy loop for each CPU",
        about="The same where each CPU has a program to run that never waits: what a host of many actors is like.",
        rows=chosen,
        goals=goals,
        takes_s=round(part * section.takes_s),
        quick_takes_s=0,
        around=_busy_loops,
    )


@contextmanager
def _busy_loops() -> Iterator[None]:
    argv = ["setpriv", "--pdeathsig=KILL", sys.executable, "-c", "while True: pass"]  # they end with this process
    loops = list[subprocess.Popen[bytes]]()
    try:
        loops.extend(subprocess.Popen(argv) for _ in os.sched_getaffinity(0))
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()
