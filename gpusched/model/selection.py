"""Which jobs are meant: by ids, names and globs, and by conditions that they meet."""

from typing import Annotated

import msgspec

from gpusched.model.queue_group import GroupName
from gpusched.model.status import JobState

__all__ = ["MOST_ENDED_SELECTED", "Selection", "is_glob"]

MOST_ENDED_SELECTED = 100_000


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs: those that `names` mean, or all, as far as they meet every condition.

    A name is an id, else the `--name` of a job that lives, else that of the job of this name that ended last. With *, ?
    or [ in it, it is a glob: all whose id or name it matches. `ended`: how many of those that ended a glob, or no name,
    means at the most, the latest first; 0: only jobs that live.

    `states`: only jobs in these, and with `held` those that are held. `waits`: only jobs of which something waits to
    start, also an array that runs. `since`: only those that live, or ended after
    that (Unix seconds); `before`: only those that ended before that. `text`: only those with this text in their
    command or options, directory or name.
    `group`: only those in this group. `last`: of all these the one that came last. `unbegun`: a name of members means
    also those that have not begun; `run-1[]` never does.
    """

    names: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=256)], ...], msgspec.Meta(max_length=10_000)] = ()
    last: bool = False
    states: Annotated[tuple[JobState, ...], msgspec.Meta(max_length=len(JobState))] = ()
    held: bool = False
    waits: bool = False
    unbegun: bool = False
    since: float | None = None
    before: float | None = None
    text: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    group: GroupName | None = None
    ended: Annotated[int, msgspec.Meta(ge=0, le=MOST_ENDED_SELECTED)] = 0


def is_glob(name: str) -> bool:
    """Return whether a name may mean several jobs."""
    return any(one in name for one in "*?[")
