"""`gpusched hold`: keep queued jobs from starting."""

from typing import Annotated

import typer

from gpusched.cli.queue_change import change
from gpusched.execution.daemon_link import complete_job

__all__ = ["hold"]


def hold(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs by id.", autocompletion=complete_job)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Keep queued jobs from starting until they are released. Jobs that run go on.

    Example: gpusched hold run-7
    """
    from gpusched.control.messages import Hold

    change(Hold(ids=tuple(jobs)), jobs, as_json=as_json)
