"""`gpusched rm`: remove jobs that have ended."""

from typing import Annotated, Final

from gpusched.cli.options import Option
from gpusched.cli.selecting import Group, JobNames, Last, State, meant

__all__ = ["rm"]

_ENDED: Final = "succeeded,failed,cancelled,lost"


def rm(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    group: Group = None,
    keep_results: Annotated[
        bool, Option("Move what a job wrote to results/JOB in the state directory.", ("--keep-results",))
    ] = False,
    as_json: Annotated[bool, Option("Print them as JSON.", ("--json",))] = False,
) -> None:
    """Remove jobs that have ended, with their directories. A glob or a group means those of them that have ended.

    Example: gpusched rm run-3 'test*'
    """
    from gpusched.api.history import Removal, remove
    from gpusched.cli.queue_answers import print_removal

    ids = meant(jobs, last=last, state=state, group=group, of_group=_ENDED)
    print_removal(remove(ids, keep_results=keep_results) if ids else Removal(), as_json=as_json)
