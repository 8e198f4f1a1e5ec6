"""What the solver is asked, in its own words: rooms, needs, and kinds of replicas of one size. It knows no roles."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.units import FRACTION_ONE

__all__ = ["UNBOUNDED", "Bin", "Demand", "DemandGroup", "PackingProblem", "SearchLimitExceeded", "kinds_at"]

UNBOUNDED: Final = 1 << 40
"""More than any number of replicas, rooms or MiB."""


class SearchLimitExceeded(UsageError):
    """Roles of too many sizes, with too many replicas, to try every way to combine them."""

    def __init__(self) -> None:
        super().__init__(
            "replicas of different sizes can be combined in too many ways to try them all",
            "give some of the roles the same memory, or ask for fewer replicas of all but the most numerous role; "
            "policy balanced has less to try than pack",
        )


class Bin(msgspec.Struct, frozen=True):
    """What one device has to give: plannable and total memory in MiB, and how many replicas it may take at most.

    `whole`: it is not in use.
    """

    plannable_mib: int
    total_mib: int
    most: int = UNBOUNDED
    whole: bool = False


class Demand(msgspec.Struct, frozen=True):
    """`count` replicas of `min_mib` to `max_mib` each.

    `share` is in 1/10 000 of the room's total, and None for an elastic need. Beside its limit a replica takes
    `context_mib`.
    """

    count: int
    min_mib: int
    share: int | None = None
    max_mib: int = UNBOUNDED
    context_mib: int = 0

    @property
    def least_mib(self) -> int:
        """The least that one replica costs a room: its minimum and its context."""
        return self.min_mib + self.context_mib

    def floor_mib(self, total_mib: int) -> int:
        """Return the least limit in a room of `total_mib`: the share rounds up, so that the fraction is reached."""
        return min(self.max_mib, max(self.min_mib, -(-total_mib * (self.share or 0) // FRACTION_ONE)))

    def limit_mib(self, x: int) -> int:
        """Return the limit of an elastic replica where none gets less than `x` MiB that may have as much."""
        return min(self.max_mib, max(self.min_mib, x))


class PackingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Rooms, needs, and how many rooms may be used at most."""

    rooms: tuple[Bin, ...]
    needs: tuple[Demand, ...]
    most_rooms: int = UNBOUNDED


class DemandGroup(NamedTuple):
    """Needs of one size: `members` are their indices, `need` is all of them in one."""

    need: Demand
    members: tuple[int, ...]


def kinds_at(needs: Sequence[Demand], x: int) -> list[DemandGroup]:
    """Merge the needs that have one size when no elastic replica gets less than `x` MiB; share kinds come first."""
    merged: dict[Demand, list[int]] = {}
    for i, need in enumerate(needs):
        if need.count:
            one = replace(need, count=1)
            if need.share is None:
                one = Demand(1, need.limit_mib(x), context_mib=need.context_mib)
            merged.setdefault(one, []).append(i)
    kinds = [
        DemandGroup(replace(one, count=sum(needs[i].count for i in members)), tuple(members))
        for one, members in merged.items()
    ]
    return sorted(kinds, key=lambda kind: kind.need.share is None)
