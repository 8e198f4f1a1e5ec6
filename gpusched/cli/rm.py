"""`gpusched rm`: remove jobs that have ended."""

from typing import Annotated

import typer

from gpusched.cli.selecting import JobNames, Last, State, meant

__all__ = ["rm"]


def rm(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    keep_results: Annotated[
        bool, typer.Option("--keep-results", help="Move what a job wrote to results/JOB in the state directory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Remove jobs that have ended, with their directories. A glob means those of them that have ended.

    Example: gpusched rm run-3 'test*'
    """
    from gpusched.api.history import Removal, remove
    from gpusched.cli.queue_answers import print_removal

    ids = meant(jobs, last=last, state=state)
    print_removal(remove(ids, keep_results=keep_results) if ids else Removal(), as_json=as_json)
