"""Jobs that have ended are removed: named ones, or all that ended some time ago."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusched.api.selecting import Since, linked, moment_of, selected, states_of
from gpusched.api.validation import SomeJobs, require_ids, require_type
from gpusched.errors import UsageError
from gpusched.execution.daemon_link import Link, in_parts
from gpusched.execution.listing import has_jobs
from gpusched.execution.removed import STILL_LIVES, delete_removed, removed_id
from gpusched.model.queue_group import GroupName
from gpusched.model.selection import MOST_ENDED_SELECTED, Selection, is_glob
from gpusched.model.status import JOB_TERMINAL
from gpusched.settings import Settings, queue_settings

if TYPE_CHECKING:
    from gpusched.control.messages import Removed

__all__ = ["Removal", "prune", "remove"]

_AT_A_TIME: Final = 100
_ENDING_S: Final = 5.0  # that the last process of a job may outlive its end
_AGAIN_S: Final = 0.05
_ENDED: Final = tuple(sorted(JOB_TERMINAL))


class Removal(NamedTuple):
    """The ids of the jobs that are no more, and why each of the others stays, by id.

    `left`: directories of the former that were moved away and could not be deleted, such as read-only ones.
    """

    ids: tuple[str, ...] = ()
    kept: Mapping[str, str] = MappingProxyType({})
    left: tuple[str, ...] = ()


def remove(ids: SomeJobs, *, keep_results: bool = False, settings: Settings | None = None) -> Removal:
    """Remove jobs that have ended, with their directories; a glob means those of them that have ended.

    `keep_results`: what a job itself wrote is moved to results/ID in the state directory. A job that lives, that
    another one is to follow, or whose directory is a link stays. Raises NotFound for what means no job, UsageError for
    none, NoDaemon and HostFault.
    """
    require_type(keep_results, bool, "keep_results")
    names, settings = require_ids(ids, "ids"), settings or queue_settings(os.environ)
    if not names:
        raise UsageError("no job is named", "name one or more")
    with linked(settings, names) as link:
        globs = [name for name in names if is_glob(name)]
        found = [*selected(link, [name for name in names if name not in globs])]
        for glob in globs:
            found += link.select(Selection(names=(glob,), states=_ENDED, ended=MOST_ENDED_SELECTED))
        return _remove(link, dict.fromkeys(found), settings, keep_results=keep_results)


def prune(
    older: Since,
    *,
    state: str | Sequence[str] = (),
    group: str | None = None,
    keep_results: bool = False,
    dry_run: bool = False,
    settings: Settings | None = None,
) -> Removal:
    """Remove all jobs that ended longer ago than `older`, such as "30d", or before that moment.

    `state`: only those that ended so, such as "failed". `group`: only those in this group. `dry_run`: nothing is
    removed; the ids are those that would be.
    The other arguments and the errors are those of `remove`.
    """
    require_type(keep_results, bool, "keep_results")
    require_type(dry_run, bool, "dry_run")
    require_type(group, GroupName | None, "group")
    states = states_of(state) or _ENDED
    if live := [one for one in states if one not in JOB_TERMINAL]:
        raise UsageError(f"a job that is {live[0]} has not ended", f"one of {', '.join(_ENDED)}")
    settings, before = settings or queue_settings(os.environ), moment_of(older, "older")
    if not has_jobs(settings):
        return Removal()
    with linked(settings, ()) as link:
        ids = link.select(Selection(states=states, before=before, group=group, ended=MOST_ENDED_SELECTED))
        return Removal(ids) if dry_run else _remove(link, ids, settings, keep_results=keep_results)


def _remove(link: Link, ids: Iterable[str], settings: Settings, *, keep_results: bool) -> Removal:
    """Remove some jobs at a time, so that the daemon has time for others, and delete what was theirs.

    An array goes after its members, which are not named in the answer.
    """
    deadline = time.monotonic() + _ENDING_S
    removed: list[str] = []
    kept: dict[str, str] = {}
    left: tuple[str, ...] = ()
    for part in in_parts(tuple(ids), _AT_A_TIME):
        done = _removed(link, part, deadline, keep_results=keep_results)
        for array in done.arrays:
            members = link.select(Selection(names=(f"{array}[]",)))
            rest = _remove(link, members, settings, keep_results=keep_results).kept
            kept |= rest
            if not rest:
                last = _removed(link, (array,), deadline, keep_results=keep_results)
                removed += last.ids
                kept |= last.kept
        removed += done.ids
        kept |= done.kept
        left = delete_removed(settings)
    return Removal(tuple(removed), kept, tuple(path for path in left if removed_id(path) in removed))


def _removed(link: Link, ids: tuple[str, ...], deadline: float, *, keep_results: bool) -> "Removed":
    """Have jobs removed; those of which a process lives, as it may for a moment after their end, again until then."""
    from gpusched.control.messages import Remove, Removed

    gone: list[str] = []
    kept: dict[str, str] = {}
    arrays: list[str] = []
    while True:
        done = link.ask(Remove(ids=ids, keep_results=keep_results), Removed)
        gone += done.ids
        kept |= done.kept
        arrays += done.arrays
        ids = tuple(job_id for job_id, why in done.kept.items() if why == STILL_LIVES)
        if not ids or time.monotonic() > deadline:
            return Removed(ids=tuple(gone), kept=kept, arrays=tuple(arrays))
        for job_id in ids:
            del kept[job_id]
        time.sleep(_AGAIN_S)
