"""`gpusched release`: let held jobs start when their turn comes."""

from typing import Annotated

from gpusched.api import queue
from gpusched.cli.options import Option
from gpusched.cli.queue_answers import print_change
from gpusched.cli.selecting import Group, JobNames, Last, State, meant, nothing_meant

__all__ = ["release"]


def release(
    jobs: JobNames = None,
    last: Last = False,
    state: State = None,
    group: Group = None,
    as_json: Annotated[bool, Option("Print the jobs as JSON.", ("--json",))] = False,
) -> None:
    """Let jobs start when their turn comes that hold, or --hold at the start, kept back.

    Example: gpusched release run-7
    """
    ids = meant(jobs, last=last, state=state, group=group, of_group="queued")
    if not ids and not as_json:
        print(nothing_meant(state or "queued", group))
    print_change(queue.release(ids) if ids else queue.Change(), as_json=as_json)
