"""`gpusched prune`: remove jobs that ended some time ago."""

from typing import Annotated

import typer

from gpusched.cli.selecting import Group

__all__ = ["prune"]


def prune(
    older: Annotated[
        str, typer.Option(metavar="WHEN", help="Those that ended longer ago: 30d, 12h, or before 2026-11-22.")
    ],
    state: Annotated[
        str | None, typer.Option(metavar="STATE,...", help="Only those that ended so: failed, lost and so on.")
    ] = None,
    group: Group = None,
    keep_results: Annotated[
        bool, typer.Option("--keep-results", help="Move what a job wrote to results/JOB in the state directory.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which they are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Remove jobs that ended some time ago, with their directories.

    Example: gpusched prune --older 30d --keep-results
    """
    from gpusched.api.history import prune
    from gpusched.cli.queue_answers import print_removal

    removal = prune(
        older, state=() if state is None else state, group=group, keep_results=keep_results, dry_run=dry_run
    )
    print_removal(removal, as_json=as_json, dry_run=dry_run)
