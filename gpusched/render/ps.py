"""Draws jobs as a table: in colour and as wide as the terminal, or as aligned plain text, whole, where there is none.

It is made of plain text and the sixteen colours alone: rich would take longer to import than the daemon to answer.
"""

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Final, TextIO

from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.ansi import colours_of, width_of
from gpusched.render.job_format import span, state_text, what
from gpusched.render.text import cell_width, cut, printable

__all__ = ["draw_table", "print_table", "table_text"]

_COLOURS: Final = {
    JobState.QUEUED: "33",  # ECMA-48, SGR: 31 red, 32 green, 33 yellow, 36 cyan, 2 faint, 1 bold
    JobState.STARTING: "36",
    JobState.RUNNING: "32",
    JobState.STOPPING: "36",
    JobState.SUCCEEDED: "2",
    JobState.FAILED: "31",
    JobState.CANCELLED: "2",
    JobState.LOST: "31",
}
_LONGEST_NAME: Final = 16
_MANY_MIB: Final = 10 * 1024
_SHORTEST_COMMAND: Final = 12
_RIGHT: Final = ("PROCS", "MEMORY", "TIME", "AGE")
_FIRST_TO_GO: Final = ("AGE", "PROCS", "MEMORY")


class _Column:
    """One column: its title, its cells from the first job to the last, its width."""

    def __init__(self, title: str, cells: list[str]) -> None:
        self.title, self.cells = title, cells

    @cached_property
    def width(self) -> int:
        return max(map(cell_width, (self.title, *self.cells)))


def print_table(jobs: Sequence[JobStatus], stream: TextIO, *, why: bool) -> None:
    """Write the jobs to `stream`, each in a line, with `why` also what it waits for."""
    colour = colours_of(stream) > 0
    width = width_of(stream, 80) if stream.isatty() else None
    if not jobs:
        print("no job runs or waits, and none has ended lately", file=stream)
        return
    for line in draw_table(jobs, time.time(), width, colour=colour, why=why):
        print(line, file=stream)


def table_text(jobs: Sequence[JobStatus]) -> str:
    """Return the jobs as a table in plain text, with what they wait for."""
    return "\n".join(draw_table(jobs, time.time(), None, colour=False, why=True))


def draw_table(
    jobs: Sequence[JobStatus], now: float, width: int | None, *, colour: bool, why: bool = False
) -> Iterator[str]:
    """Yield the lines of the table; the commands are cut at `width` columns (None: not at all)."""
    columns = _fitting(_columns(jobs, now), width)
    head = _line([column.title for column in columns], columns, width)
    yield f"\x1b[2m{head}\x1b[0m" if colour else head
    for row, job in enumerate(jobs):
        styles = {"ID": "1", "STATE": _COLOURS[job.state]} if colour else None
        yield _line([column.cells[row] for column in columns], columns, width, styles)
        if why:
            for part in _reasons(job, width):
                yield f"\x1b[2m{part}\x1b[0m" if colour else part


def _columns(jobs: Sequence[JobStatus], now: float) -> list[_Column]:
    columns = [
        _Column("ID", [job.id for job in jobs]),
        _Column("NAME", [cut(printable(job.name or "-"), _LONGEST_NAME) for job in jobs]),
        _Column("STATE", [state_text(job) for job in jobs]),
        _Column("PROCS", [_processes(job) for job in jobs]),
        _Column("GPUS", [_devices(job) for job in jobs]),
        _Column("MEMORY", _memory(jobs)),
        _Column("TIME", [_time(job, now) for job in jobs]),
        _Column("AGE", [span(now - job.created) for job in jobs]),
        _Column("COMMAND", [what(job) for job in jobs]),
    ]
    return [column for column in columns if column.title not in ("NAME", "GPUS", "MEMORY") or {*column.cells} != {"-"}]


def _fitting(columns: list[_Column], width: int | None) -> list[_Column]:
    """Return the columns less those that would leave the command no room."""
    if width is None:
        return columns
    for title in _FIRST_TO_GO:
        if sum(column.width + 2 for column in columns[:-1]) + _SHORTEST_COMMAND <= width:
            break
        columns = [column for column in columns if column.title != title]
    return columns


def _line(
    cells: Sequence[str], columns: Sequence[_Column], width: int | None, styles: Mapping[str, str] | None = None
) -> str:
    """Return the cells in their columns, the last one cut to the room it has; `styles` are colours by title."""
    shown, used = [], 0
    for cell, column in zip(cells[:-1], columns, strict=False):
        gap = " " * (column.width - cell_width(cell))
        styled = f"\x1b[{styles[column.title]}m{cell}\x1b[0m" if styles and column.title in styles else cell
        shown.append(gap + styled if column.title in _RIGHT else styled + gap)
        used += column.width + 2
    return "  ".join([*shown, cells[-1] if width is None else cut(cells[-1], max(width - used, 0))]).rstrip()


def _reasons(job: JobStatus, width: int | None) -> list[str]:
    """Return what a job waits for, or why it ended as it did, in indented lines."""
    text = None
    if job.state is JobState.QUEUED:
        text = f"held: gpusched release {job.id}" if job.held else job.why or "it waits for its turn"
    elif job.state in JOB_TERMINAL and job.state is not JobState.SUCCEEDED:
        text = job.message
    warned = [f"{one.name}: {one.warning}" for one in job.replicas if one.warning and job.state not in JOB_TERMINAL]
    texts = [printable(each) for each in (text, *warned) if each]
    if width is None:
        return [f"    {each}" for each in texts]
    return [f"    {line}" for each in texts for line in textwrap.wrap(each, max(width - 4, 20), break_on_hyphens=False)]


def _processes(job: JobStatus) -> str:
    if not job.replicas:
        return "-"
    if job.state in JOB_TERMINAL or job.state is JobState.QUEUED:
        return str(len(job.replicas))
    running = sum(one.state is ReplicaState.RUNNING for one in job.replicas)
    return f"{running}/{len(job.replicas)}"


def _devices(job: JobStatus) -> str:
    """Return the devices of a job that has some: `0-3`, `0,2`; `~` before them marks simulated ones."""
    found = {one.device_index for one in job.replicas if one.device_index is not None}
    found |= {share.device_index for one in job.replicas for share in one.further}
    runs = [list(run) for _, run in groupby(enumerate(sorted(found)), key=lambda pair: pair[1] - pair[0])]
    ranges = [str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs]
    return ("~" if job.simulated else "") + ",".join(ranges) if ranges else "-"


def _memory(jobs: Sequence[JobStatus]) -> list[str]:
    """Return what each job holds, all in one unit, so that a column of numbers can be compared."""
    shares = [
        sum(one.share_mib + sum(share.share_mib for share in one.further) for one in job.replicas) for job in jobs
    ]
    if max(shares, default=0) >= _MANY_MIB:
        return [f"{mib / 1024:.1f} GiB" if mib else "-" for mib in shares]
    return [f"{mib} MiB" if mib else "-" for mib in shares]


def _time(job: JobStatus, now: float) -> str:
    """Return how long the job has run."""
    if job.state is JobState.QUEUED or (job.state in JOB_TERMINAL and (job.ended is None or job.started is None)):
        return "-"
    return span((job.ended or now) - (job.started or job.created))
