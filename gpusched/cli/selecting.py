"""Which jobs a command is for: ids, names, globs, `--last`, `--state`, `--group`; the same of all that take jobs."""

from collections.abc import Sequence
from typing import Annotated

from gpusched.api import queue
from gpusched.api.groups import group_names
from gpusched.cli.options import Option
from gpusched.errors import UsageError
from gpusched.model.status import JobState

__all__ = ["Group", "JobNames", "Last", "OneJob", "State", "meant", "nothing_meant", "the_one"]

JobNames = Annotated[
    list[str] | None,
    Option("Jobs by id or name, or globs: 'train*'.", metavar="[JOB]...", complete=queue.job_ids, argument=True),
]
OneJob = Annotated[
    str | None, Option("A job by its id or name.", metavar="[JOB]", complete=queue.job_ids, argument=True)
]
Last = Annotated[bool, Option("The job that came last.", ("--last",))]
State = Annotated[
    str | None, Option("Jobs in these states: queued, running and so on.", ("--state",), metavar="STATE,...")
]
Group = Annotated[str | None, Option("Jobs in this group.", ("--group",), metavar="NAME", complete=group_names)]


def meant(
    jobs: Sequence[str] | None, *, last: bool, state: str | None, group: str | None = None, of_group: str | None = None
) -> tuple[str, ...]:
    """Return the ids of the jobs that are meant; none where none is in such a state. Raises UsageError for no word.

    `of_group`: in which states those of a group are meant where no state is given, by default all that live; "queued"
    is then also a sweep that runs, of which members wait.
    """
    if not jobs and not last and state is None and group is None:
        raise UsageError("no job is named", "name one or more, or give --last, --state or --group")
    if not last and state is None and group is None:
        return tuple(jobs or ())
    if state is None and group is not None:
        if of_group == JobState.QUEUED and not last:
            return queue.select_waiting(jobs or (), group=group)
        state = of_group
    found = queue.select(jobs or (), last=last, state=() if state is None else state, group=group)
    if last and not found:
        raise UsageError("there is no job yet", "see gpusched launch --help, gpusched run --help")
    return found


def nothing_meant(state: str | None, group: str | None) -> str:
    """Return the line for who meant jobs by a condition that none meets."""
    which = "no job" if group is None else f"no job of group {group}"
    return f"{which} runs or waits" if state is None else f"{which} is {state.replace(',', ' or ')}"


def the_one(job: str | None, *, last: bool) -> str:
    """Return the job that is meant: the named one, or with `last` the one that came last. Raises UsageError."""
    if (job is None) != last:
        raise UsageError("--last and a job exclude each other" if last else "no job is named", "name one, or --last")
    return meant(None, last=True, state=None)[0] if job is None else job
