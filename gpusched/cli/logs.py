"""`gpusched logs`: what the processes of a job have written, and with -f what they go on to write."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpusched.api.queue import find_jobs, job_ids
from gpusched.cli.absent import noted
from gpusched.cli.log_writer import Writer
from gpusched.errors import NotFound
from gpusched.execution.daemon_link import Link
from gpusched.execution.log_tail import LogTail
from gpusched.settings import Settings, load_settings

if TYPE_CHECKING:
    from gpusched.model.status import JobStatus

__all__ = ["logs"]

_POLL_S: Final = 0.1
_QUEUE_POLL_S: Final = 0.3
_MOST_NAMES: Final = 12


def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job by its id.", autocompletion=job_ids)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    replica: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one, such as actor.3. [default: all]")
    ] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, metavar="N", help="The last N of each. [default: all]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help='Print each line as {"replica", "line"}.')] = False,
) -> None:
    """Print what a job's processes have written, each line with its process in front if there are several.

    Of a progress bar that redraws its line, only -f shows more than the last state.

    Example: gpusched logs -f snake-4 --replica actor.3 --lines 20
    """
    settings = load_settings(os.environ)
    (found,) = noted(find_jobs(job))
    if follow:
        found = _until_begun(found)
    tails = _tails(found, replica, lines, as_json=as_json, final=not follow)
    if not follow:
        for tail in tails:
            tail.show(last=True)
        return
    found = _until_over(settings, found, tails)
    from gpusched.render.job_format import end_line

    print(end_line(found), file=sys.stderr)


def _until_begun(job: "JobStatus") -> "JobStatus":
    """Return the job when it no longer waits; print on stderr what it waits for, each time that changes."""
    from gpusched.model.status import JOB_TERMINAL, JobState
    from gpusched.render.text import printable

    printed = None
    while not job.replicas and job.state not in JOB_TERMINAL:
        why = "it is held" if job.held else job.why or "its turn has not come"
        if why != printed and job.state is JobState.QUEUED:
            print(f"{job.id} waits: {printable(why)}", file=sys.stderr)
            printed = why
        time.sleep(_QUEUE_POLL_S)
        (job,) = find_jobs(job.id).jobs
    return job


def _until_over(settings: Settings, job: "JobStatus", tails: Sequence[LogTail]) -> "JobStatus":
    """Show what is written until the job has ended, by the status in its directory; the daemon may come and go."""
    from gpusched.execution.read_jobs import read_job
    from gpusched.model.status import JOB_TERMINAL

    while True:
        status = read_job(Path(job.run_dir))
        over = status.state in JOB_TERMINAL and _is_over(settings, job.id)
        for tail in tails:
            tail.show(last=over)
        if over:
            return status
        time.sleep(_POLL_S)


def _is_over(settings: Settings, job: str) -> bool:
    """Return False if the daemon has queued the job again, or is about to. Without a daemon it is over."""
    from gpusched.model.status import JOB_TERMINAL

    try:
        with Link(settings) as link:
            return link.job(job).state in JOB_TERMINAL
    except NotFound:
        return True


def _tails(job: "JobStatus", replica: str | None, lines: int | None, *, as_json: bool, final: bool) -> list[LogTail]:
    """Return what reads the logs of the replicas that are asked for; `final`: see Writer. Raises NotFound for none."""
    from gpusched.model.status import ENDED, JOB_TERMINAL

    names = [one.name for one in job.replicas]
    if not names:
        hint = "" if job.state in JOB_TERMINAL else f"follow it from its start: gpusched logs -f {job.id}"
        raise NotFound(f"{job.id} has no log: it {ENDED.get(job.state, f'is {job.state}')}", hint)
    if replica is not None and replica not in names:
        there = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES))
        raise NotFound(f"{job.id} has no replica {replica!r}", f"there is: {there}")
    chosen = [one for one in job.replicas if replica in (None, one.name)]
    logged = [(one.name, Path(one.log)) for one in chosen if one.log is not None]
    if not logged:
        raise NotFound(
            f"{job.id} has no log: its output went where gpusched run was typed", "run it with -d to have it kept"
        )
    width = max(len(name) for name, _ in logged)
    return [
        LogTail(path, lines, Writer(name, width=width if len(logged) > 1 else 0, as_json=as_json, final=final))
        for name, path in logged
    ]
