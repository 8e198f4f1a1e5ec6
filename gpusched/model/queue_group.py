"""Groups of the queue: jobs that share a limit of their own, and that are paused and resumed together."""

from typing import Annotated

import msgspec

__all__ = ["AtMost", "GroupChange", "GroupName", "GroupStatus", "QueueGroup"]

GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
AtMost = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What is set of a group. It exists from its first mention on, and is kept only while something is set.

    `at_most`: how many of its jobs may run at the same time, None: any number. `paused`: no job of it starts; those
    that run go on.
    """

    name: GroupName
    at_most: AtMost | None = None
    paused: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing is set."""
        return self.at_most is None and not self.paused


class GroupStatus(QueueGroup, frozen=True, kw_only=True):
    """A group as others see it: what is set, and how many of its jobs are `running` (starting, stopping) and `waiting`.

    A job of several processes is one job.
    """

    running: int = 0
    waiting: int = 0


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed of a group, as there; UNSET: nothing."""

    at_most: AtMost | msgspec.UnsetType | None = msgspec.UNSET
    paused: bool | msgspec.UnsetType = msgspec.UNSET

    def of(self, group: QueueGroup) -> QueueGroup:
        """Return the group with these changes."""
        at_most = group.at_most if self.at_most is msgspec.UNSET else self.at_most
        return QueueGroup(
            name=group.name,
            at_most=at_most,
            paused=group.paused if self.paused is msgspec.UNSET else self.paused,
        )
