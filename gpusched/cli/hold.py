"""`gpusched hold`: keep queued jobs from starting."""

from typing import Annotated

from gpusched.api import queue
from gpusched.cli.options import Option
from gpusched.cli.queue_answers import print_change
from gpusched.cli.selecting import Group, JobNames, Last, State, meant, nothing_meant

__all__ = ["hold"]


def hold(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    group: Group = None,
    as_json: Annotated[bool, Option("Print the jobs as JSON.", ("--json",))] = False,
) -> None:
    """Keep queued jobs from starting until they are released. Jobs that run go on.

    Example: gpusched hold run-7
    """
    ids = meant(jobs, last=last, state=state, group=group, of_group="queued")
    if not ids and not as_json:
        print(nothing_meant(state or "queued", group))
    print_change(queue.hold(ids) if ids else queue.Change(), as_json=as_json)
