"""Which jobs a caller means, as the daemon is asked for them."""

import datetime as dt
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from gpusched.api.validation import require_type
from gpusched.errors import NotFound, UsageError
from gpusched.execution.daemon_link import Link, in_parts
from gpusched.execution.listing import has_jobs
from gpusched.model.selection import MOST_ENDED_SELECTED, Selection, is_glob
from gpusched.model.status import JobState
from gpusched.settings import Settings
from gpusched.times import parse_since

if TYPE_CHECKING:
    from gpusched.model.status import JobStatus

__all__ = [
    "HELD",
    "Since",
    "jobs_of",
    "linked",
    "listed",
    "moment_of",
    "only",
    "selected",
    "states_of",
    "waiting",
]

Since = str | float | dt.datetime
"""A moment, or how long ago it was: "2h", a number of seconds."""

HELD: Final = "held"
"""What a job is shown as that waits until it is released. It is queued."""

_NAMED: Final = 3


def linked(settings: Settings, ids: Sequence[str]) -> Link:
    """Return a link for what needs the daemon: it is started if there is none and there are jobs.

    Raises NotFound for the jobs `ids` where there can be none.
    """
    known = has_jobs(settings)
    if ids and not known:
        raise NotFound(f"there is no job {ids[0]}", "see `gpusched ps --all`")
    return Link(settings, starts=known, lasting=True)


def selected(link: Link, names: Sequence[str], ended: int = 0, *, unbegun: bool = False) -> tuple[str, ...]:
    """Return the ids that names mean, of a glob those that live and the `ended` latest. Raises NotFound.

    `unbegun`: also of members of arrays that have not begun.
    """
    most = min(ended, MOST_ENDED_SELECTED)
    found = (link.select(Selection(names=part, ended=most, unbegun=unbegun)) for part in in_parts(names))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def jobs_of(link: Link, names: Sequence[str], ended: int = 0) -> "tuple[JobStatus, ...]":
    """Return the jobs that names mean, or with none all that live, and the `ended` latest. Raises NotFound."""
    ids = selected(link, names, ended, unbegun=True)
    return link.jobs(ids, ended) if ids or not names else ()


def waiting(link: Link, names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that names mean, of a glob only those that wait. Raises NotFound."""
    globs = [name for name in names if is_glob(name)]
    ids = selected(link, [name for name in names if name not in globs])
    for glob in globs:
        found = link.select(Selection(names=(glob,), waits=True))
        if not found:
            raise NotFound(f"no job that waits matches {glob}", "see `gpusched ps`")
        ids += found
    return tuple(dict.fromkeys(ids))


def only(name: str, ids: Sequence[str]) -> str:
    """Return the one id that a name means. Raises UsageError where it means several."""
    if len(ids) > 1:
        raise UsageError(f"{name} means several jobs: {', '.join(ids[:_NAMED])}", "name one of them")
    return ids[0]


def states_of(state: str | Sequence[str], more: str = "") -> tuple[JobState, ...]:
    """Return states by their names, as text with commas between them. Raises UsageError for a name of none.

    `more`: what its hint has beside them.
    """
    given = listed(state)
    unknown = [one for one in given if one not in list(JobState)]
    if unknown:
        raise UsageError(f"there is no state {unknown[0]!r}", f"one of {', '.join(JobState)}{more}")
    return tuple(dict.fromkeys(map(JobState, given)))


def listed(state: str | Sequence[str]) -> Sequence[str]:
    """Return names of states as they are given, as text with commas between them."""
    given = state.split(",") if isinstance(state, str) else state
    require_type(given, Sequence[str], "state")
    return given


def moment_of(since: Since, name: str) -> float:
    """Return a moment that is over as Unix seconds. Raises UsageError, naming the argument `name`."""
    if isinstance(since, dt.datetime):
        since = since.isoformat()
    require_type(since, str | float, name)
    text = since if isinstance(since, str) else f"{since:.3f}s"
    return parse_since(text, dt.datetime.now().astimezone(), name)
