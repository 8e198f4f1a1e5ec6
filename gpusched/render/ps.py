"""Draws jobs as a table: in colour and as wide as the terminal, or as aligned plain text, whole, where there is none.

It is made of plain text and the sixteen colours alone: rich would take longer to import than the daemon to answer.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.model.idle import idle_text
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.ansi import Text
from gpusched.render.job_format import array_text, idle_mark, span, state_text, time_run, what
from gpusched.render.table import fitting, lines_of, room_of_last, wrapped
from gpusched.render.text import cut, cut_middle, index_runs, printable

__all__ = ["draw_table", "reasons"]

_COLOURS: Final = {
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "green",
    JobState.STOPPING: "cyan",
    JobState.SUCCEEDED: "dim",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
    JobState.LOST: "red",
}
_LONGEST_NAME: Final = 16
_MANY_MIB: Final = 10 * 1024
_SHORTEST_COMMAND: Final = 24
_MAY_GO: Final = (">AGE", ">PROCS", ">MEMORY", "GROUP")


def draw_table(jobs: Sequence[JobStatus], now: float, width: int | None, *, why: bool) -> Iterator[Text]:
    """Yield the lines of the table, with `why` also what each waits for; commands are cut at `width` columns."""
    titles, rows = fitting(*_columns(jobs, now), width, _MAY_GO, _SHORTEST_COMMAND)
    if width is not None:
        room = room_of_last(titles, rows, width)
        titles = [*titles[:-1], cut(titles[-1], room)]
        rows = [[*row[:-1], Text(cut_middle(row[-1].plain, room))] for row in rows]
    head, *lines = lines_of(titles, rows, width)
    yield Text(head.plain, style="dim")
    for job, line in zip(jobs, lines, strict=True):
        yield line
        for text in reasons(job, now) if why else ():
            yield from wrapped(text, width, style="dim", indent="    ")


def _columns(jobs: Sequence[JobStatus], now: float) -> tuple[list[str], list[list[Text]]]:
    """Return titles and rows, without the columns in which no job has anything."""
    columns = {
        "ID": [Text(job.id, "bold") for job in jobs],
        "NAME": [Text(cut(printable(job.name or "-"), _LONGEST_NAME)) for job in jobs],
        "GROUP": [Text(cut(printable(job.group or "-"), _LONGEST_NAME)) for job in jobs],
        "STATE": [_state(job, now) for job in jobs],
        "MEMBERS": [Text(array_text(job.array) if job.array else "-") for job in jobs],
        ">PROCS": [Text(_processes(job)) for job in jobs],
        "GPUS": [Text(_devices(job)) for job in jobs],
        ">MEMORY": [Text(text) for text in _memory(jobs)],
        ">TIME": [Text(time_run(job, now)) for job in jobs],
        ">AGE": [Text(span(now - job.created)) for job in jobs],
        "COMMAND": [Text(what(job)) for job in jobs],
    }
    for title in ("NAME", "GROUP", "MEMBERS", "GPUS", ">MEMORY"):
        if {cell.plain for cell in columns[title]} == {"-"}:
            del columns[title]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _state(job: JobStatus, now: float) -> Text:
    mark = idle_mark(job, now)
    return Text(state_text(job) + mark, "yellow" if mark else _COLOURS[job.state])


def reasons(job: JobStatus, now: float) -> list[str]:
    """Return what a job waits for, that it is idle at the Unix time `now`, or why it ended as it did.

    What its replicas are warned of comes after that.
    """
    text = None
    if job.state is JobState.QUEUED:
        text = f"held: gpusched release {job.id}" if job.held else job.why or "it waits for its turn"
    elif job.state in JOB_TERMINAL and job.state is not JobState.SUCCEEDED:
        text = job.message
    elif job.idle_since is not None:
        text = idle_text(max(0.0, now - job.idle_since), job.idle_end_s)
    elif job.array and job.state not in JOB_TERMINAL:
        text = job.note or job.message
    warned = [f"{one.name}: {one.warning}" for one in job.replicas if one.warning and job.state not in JOB_TERMINAL]
    return [printable(each) for each in (text, *warned) if each]


def _processes(job: JobStatus) -> str:
    if not job.replicas:
        return "-"
    if job.state in JOB_TERMINAL or job.state is JobState.QUEUED:
        return str(len(job.replicas))
    running = sum(one.state is ReplicaState.RUNNING for one in job.replicas)
    return f"{running}/{len(job.replicas)}"


def _devices(job: JobStatus) -> str:
    """Return the devices of a job that has some: `0-3`, `0,2`; `~` before them marks simulated ones."""
    found = job.device_indices
    return ("~" if job.simulated else "") + ",".join(index_runs(found)) if found else "-"


def _memory(jobs: Sequence[JobStatus]) -> list[str]:
    """Return what each job holds, all in one unit, so that a column of numbers can be compared."""
    shares = [sum(one.all_shares_mib for one in job.replicas) for job in jobs]
    if max(shares, default=0) >= _MANY_MIB:
        return [f"{mib / 1024:.1f} GiB" if mib else "-" for mib in shares]
    return [f"{mib} MiB" if mib else "-" for mib in shares]
