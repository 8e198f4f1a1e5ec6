"""Groups of the queue: how many jobs of one may run at the same time, and whether any starts.

A job is in a group by `group=` of gpusched.submit and gpusched.run. A group exists from its first mention on, also
before it has a job. `settings` are those of the environment where none are given. All functions raise NoDaemon and
HostFault.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpusched.api.validation import require_type
from gpusched.errors import GpuschedError, UsageError
from gpusched.execution.daemon_link import Link
from gpusched.execution.listing import has_queue
from gpusched.model.queue_group import AtMost, GroupName, GroupStatus
from gpusched.settings import Settings, queue_settings

if TYPE_CHECKING:  # a command's --help needs none of it, and ZeroMQ takes its time
    from gpusched.control.messages import ChangeGroup, ListGroups

__all__ = ["Group", "change_group", "find_group", "find_groups", "group_names"]

_COMPLETION_S: Final = 0.4
_NO_LIMIT: Final = "none"


class Group(GroupStatus, frozen=True, kw_only=True):
    """A group as a value that prints; see gpusched.model.queue_group."""

    def __repr__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.groups import draw_groups

        return plain(lambda _: draw_groups((self,)))


def find_groups(*, settings: Settings | None = None) -> tuple[Group, ...]:
    """Return the groups that have a job that runs or waits, or of which something is set, by name."""
    from gpusched.control.messages import ListGroups

    settings = settings or queue_settings(os.environ)
    return _asked(ListGroups(), settings) if has_queue(settings) else ()


def find_group(name: str, *, settings: Settings | None = None) -> Group:
    """Return a group; one that was never mentioned has no job, and nothing is set of it."""
    from gpusched.control.messages import ListGroups

    require_type(name, GroupName, "name")
    settings = settings or queue_settings(os.environ)
    return _asked(ListGroups(name=name), settings)[0] if has_queue(settings) else Group(name=name)


def change_group(
    name: str, *, at_most: int | str | None = None, paused: bool | None = None, settings: Settings | None = None
) -> Group:
    """Change how many jobs of a group may run at the same time, or whether any starts; return the group as it is then.

    `at_most`: from 1 on; "none" takes the limit away. `paused`: no job of it starts until it is False again. What is
    None stays as it is. Jobs that run go on, also where they are more than may. Raises UsageError.

    Example: groups.change_group("sweeps", at_most=2)
    """
    from gpusched.control.messages import ChangeGroup
    from gpusched.model.queue_group import GroupChange

    require_type(name, GroupName, "name")
    require_type(paused, bool | None, "paused")
    change: dict[str, Any] = {} if paused is None else {"paused": paused}
    if at_most is not None:
        change["at_most"] = _limit(at_most)
    if not change:
        raise UsageError(f"there is nothing to change of {name}", "give at_most or paused")
    request = ChangeGroup(name=name, change=GroupChange(**change))
    return _asked(request, settings or queue_settings(os.environ))[0]


def group_names(begin: str = "") -> list[str]:
    """Return the names of groups that begin so, none if no daemon answers at once: it is what a shell completes.

    It raises only UsageError for what is no text.
    """
    require_type(begin, str, "begin")
    with suppress(GpuschedError):
        from gpusched.control.client import Client
        from gpusched.control.messages import Groups, ListGroups

        with Client(queue_settings(os.environ)) as client:
            answer = client.ask(ListGroups(), _COMPLETION_S)
        if isinstance(answer, Groups):
            return [group.name for group in answer.groups if group.name.startswith(begin)]
    return []


def _limit(at_most: int | str) -> int | None:
    if at_most == _NO_LIMIT:
        return None
    number = int(at_most) if isinstance(at_most, str) and at_most.isascii() and at_most.isdigit() else at_most
    try:
        return msgspec.convert(number, AtMost)
    except msgspec.ValidationError:
        hint = "give a number from 1 on, or none; to let no job of it start, pause it"
        raise UsageError(f"at_most: {at_most!r} is no limit", hint) from None


def _asked(request: "ListGroups | ChangeGroup", settings: Settings) -> tuple[Group, ...]:
    from gpusched.control.messages import Groups

    with Link(settings, starts=True) as link:
        return tuple(Group(**msgspec.structs.asdict(group)) for group in link.ask(request, Groups).groups)
