"""`gpusched release`: let held jobs start when their turn comes."""

from typing import Annotated

import typer

from gpusched.api import queue
from gpusched.cli.queue_answers import print_change

__all__ = ["release"]


def release(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs by id.", autocompletion=queue.job_ids)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Let jobs start when their turn comes that hold, or --hold at the start, kept back.

    Example: gpusched release run-7
    """
    print_change(queue.release(jobs), as_json=as_json)
