"""`gpusched logs`: what the processes of a job have written, and with -f what they go on to write."""

import sys
from pathlib import Path
from typing import Annotated, Final

from gpusched.api.handle import Job
from gpusched.api.queue import find_job
from gpusched.cli.log_writer import Writer
from gpusched.cli.options import Option
from gpusched.cli.queue_answers import noted
from gpusched.cli.selecting import Last, OneJob, the_one

__all__ = ["logs"]

_QUEUE_POLL_S: Final = 0.3


def logs(
    job: OneJob = None,
    last: Last = False,
    follow: Annotated[bool, Option("Go on until the job ends.", ("--follow", "-f"))] = False,
    replica: Annotated[str | None, Option("Only this one, such as actor.3. [default: all]", metavar="NAME")] = None,
    lines: Annotated[
        int | None, Option("The last N of each. [default: all]", ("--lines", "-n"), metavar="N", least=0)
    ] = None,
    as_json: Annotated[bool, Option('Print each line as {"replica", "line"}.', ("--json",))] = False,
) -> None:
    """Print what a job's processes have written, each line with its process in front if there are several.

    Of a progress bar that redraws its line, only -f shows more than the last state.

    Example: gpusched logs -f snake-4 --replica actor.3 --lines 20
    """
    (found,) = noted(find_job(the_one(job, last=last)))
    handle = Job(found.id, Path(found.run_dir))
    if follow:
        _print_until_begun(handle)
    writers: dict[str, Writer] = {}
    for name, width, piece in handle.log_pieces(replica, follow=follow, lines=lines):
        writer = writers.setdefault(name, Writer(name, width, as_json=as_json, final=not follow))
        if piece:
            writer.write(piece)
        else:
            writers.pop(name).flush()
    if follow:
        from gpusched.render.job_format import end_line

        print(end_line(handle.status()), file=sys.stderr)


def _print_until_begun(job: Job) -> None:
    """Print on stderr what the job waits for, each time that changes, until it no longer waits."""
    from gpusched.model.status import JobState
    from gpusched.render.text import printable

    printed = None
    for status in job.watch(_QUEUE_POLL_S):
        if status.replicas or (status.array is not None and status.array.live + status.array.ended):
            return
        why = "it is held" if status.held else status.why or "its turn has not come"
        if why != printed and status.state is JobState.QUEUED:
            print(f"{job.id} waits: {printable(why)}", file=sys.stderr)
            printed = why
