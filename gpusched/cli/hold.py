"""`gpusched hold`: keep queued jobs from starting."""

from typing import Annotated

import typer

from gpusched.api import queue
from gpusched.cli.queue_answers import print_change

__all__ = ["hold"]


def hold(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs by id.", autocompletion=queue.job_ids)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Keep queued jobs from starting until they are released. Jobs that run go on.

    Example: gpusched hold run-7
    """
    print_change(queue.hold(jobs), as_json=as_json)
