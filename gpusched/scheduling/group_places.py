"""How many more jobs of each group and array may start in one pass, and for which heads a place is kept."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpusched.scheduling.decision import Running
from gpusched.scheduling.wait_reasons import array_full, array_place_kept, group_full, group_place_kept

__all__ = ["NO_LIMITS", "Bound", "GroupPlaces", "Limits"]

Bound = tuple[str, str]
"""What has a limited number of places: `group` or `array`, and its name."""

_GROUP, _ARRAY = "group", "array"
_FULL: Final = {_GROUP: group_full, _ARRAY: array_full}
_KEPT: Final = {_GROUP: group_place_kept, _ARRAY: array_place_kept}


class Limits(NamedTuple):
    """How many jobs of each group, and members of each array, may run at the same time, where there is a limit."""

    groups: Mapping[str, int] = MappingProxyType({})
    arrays: Mapping[str, int] = MappingProxyType({})


NO_LIMITS: Final = Limits()


class GroupPlaces:
    """The places of the groups and arrays that have a limit."""

    def __init__(self, limits: Limits, running: Iterable[Running]) -> None:
        self._limits = {(_GROUP, name): most for name, most in limits.groups.items()}
        self._limits |= {(_ARRAY, name): most for name, most in limits.arrays.items()}
        self._running = Counter(bound for job in running for bound in self.bounds(job.group, job.array))
        self._heads: dict[Bound, list[str]] = {}

    def bounds(self, group: str | None, array: str | None) -> tuple[Bound, ...]:
        """Return what a job of this group and array has to find a place in."""
        if not self._limits or (group is None and array is None):
            return ()
        return tuple(bound for bound in ((_GROUP, group or ""), (_ARRAY, array or "")) if bound in self._limits)

    def full(self, bounds: Iterable[Bound]) -> str | None:
        """Return why no job of them may start now, whatever is free; None if one may."""
        for kind, name in bounds:
            running, most = self._running[kind, name], self._limits[kind, name]
            if running >= most:
                return _FULL[kind](name, running, most)
        return None

    def kept(self, bounds: Iterable[Bound], passing: str | None = None) -> str | None:
        """Return for which head the last place in one of them is kept, as a reason; None if there are more.

        That of the head `passing` is not counted: the job will be over when that one starts.
        """
        for bound in bounds:
            heads = [head for head in self._heads.get(bound, ()) if head != passing]
            if heads and self._running[bound] + len(heads) >= self._limits[bound]:
                return _KEPT[bound[0]](bound[1], heads[0], self._limits[bound])
        return None

    def take(self, bounds: Iterable[Bound]) -> None:
        """Note that a job of them starts."""
        self._running.update(bounds)

    def keep(self, bounds: Iterable[Bound], head: str) -> None:
        """Keep a place in each for a job that starts as soon as its devices are free."""
        for bound in bounds:
            self._heads.setdefault(bound, []).append(head)
