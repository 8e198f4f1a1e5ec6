"""`gpusched release`: let held jobs start when their turn comes."""

from typing import Annotated

import typer

from gpusched.cli.queue_change import change
from gpusched.execution.daemon_link import complete_job

__all__ = ["release"]


def release(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs by id.", autocompletion=complete_job)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Let jobs start when their turn comes that hold, or --hold at the start, kept back.

    Example: gpusched release run-7
    """
    from gpusched.control.messages import Release

    change(Release(ids=tuple(jobs)), jobs, as_json=as_json)
