"""How many more jobs of each group may start in one pass over the queue, and for which heads a place is kept."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusched.scheduling.wait_reasons import group_full, group_place_kept

__all__ = ["GroupPlaces"]


class GroupPlaces:
    """The places of the groups that have a limit: `limits` by name. `running` has the group of each job that runs."""

    def __init__(self, limits: Mapping[str, int], running: Iterable[str | None]) -> None:
        self._limits = limits
        self._running = Counter(group for group in running if group in limits)
        self._heads: dict[str, list[str]] = {}

    def full(self, group: str | None) -> str | None:
        """Return why no job of the group may start now, whatever is free; None if one may."""
        if group is None or group not in self._limits or self._running[group] < self._limits[group]:
            return None
        return group_full(group, self._running[group], self._limits[group])

    def kept(self, group: str | None, passing: str | None = None) -> str | None:
        """Return for which head of the group the last place is kept, as a reason; None if there are more.

        That of the head `passing` is not counted: the job will be over when that one starts.
        """
        if group is None or group not in self._heads:
            return None
        heads = [head for head in self._heads[group] if head != passing]
        if not heads or self._running[group] + len(heads) < self._limits[group]:
            return None
        return group_place_kept(group, heads[0], self._limits[group])

    def take(self, group: str | None) -> None:
        """Note that a job of the group starts."""
        if group in self._limits:
            self._running[group] += 1

    def keep(self, group: str | None, head: str) -> None:
        """Keep a place for a job of the group that starts as soon as its devices are free."""
        if group is not None and group in self._limits:
            self._heads.setdefault(group, []).append(head)
