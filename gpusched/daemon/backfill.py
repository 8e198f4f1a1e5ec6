"""What a job behind the head of the queue may take without keeping the head waiting longer.

The head is the first job that does not fit now. Things end: each job, and the memory that others use on a device, taken
as one thing. Which of them ends first is unknown; so a job is harmless if the head fits beside it after every set of
ends after which the head would fit without it. Memory that becomes free never turns a fit into none, so that only the
smallest such sets have to be checked. They are counted by how much ends where, because equal things are
interchangeable. The checks are bounded: where there would be too many, nothing is called harmless.

The second way is time: where the known time limits of running jobs give the head its start at a time T at the latest, a
job that is over by T may start whatever it takes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.lease import Lease
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.solve import smallest

__all__ = ["HeadReservation", "Release", "amounts_of", "things_of"]

_Amounts = tuple[tuple[int, int], ...]


class Release(NamedTuple):
    """What may end: a job's leases or, with `foreign`, what others use on a device."""

    amounts: _Amounts
    """Places in the row of devices, each with MiB."""
    foreign: bool = False
    ours: bool = False
    """A job of this daemon, whose end makes room for another one among the jobs that may run at a time."""
    ends_at: float | None = None
    """In Unix seconds, None if unknown."""


class HeadReservation:
    """What the head of a queue waits for. `grounds` are the devices that it could be on; `fits` returns if it is there.

    `things` are all that is on them. `checks` bounds how many sets of ends are checked.
    """

    def __init__(
        self,
        grounds: Sequence[DeviceCapacity],
        things: Iterable[Release],
        fits: Callable[[Sequence[DeviceCapacity]], bool],
        checks: int,
    ) -> None:
        self.devices = frozenset(budget.device.uuid for budget in grounds)
        self._grounds = tuple(grounds)
        self._fits = fits
        self._things = list(things)
        self._checks = checks
        self._smallest: list[tuple[Release, ...]] | None = None
        self._harmless: dict[_Amounts, bool] = {}

    @cached_property
    def shadow_time(self) -> float | None:
        """When the head starts at the latest, by the time limits of what runs; None if these are not enough."""
        ends = [thing for thing in self._things if thing.ends_at is not None]
        ends.sort(key=lambda thing: thing.ends_at or 0.0)
        try:
            if not self._fits(self._after(ends)):
                return None
            first = smallest(lambda number: self._fits(self._after(ends[:number])), 0, len(ends))
        except UsageError:  # not every way can be tried: the planner's word
            return None
        return ends[first - 1].ends_at if first else None

    def never_delays_head(self, leases: Sequence[Lease]) -> bool:
        """Return whether a job with these leases can never be what the head waits for."""
        amounts = amounts_of(leases, self._grounds)
        if amounts not in self._harmless:
            try:
                self._harmless[amounts] = not amounts or self._is_harmless(Release(amounts))
            except UsageError:
                self._harmless[amounts] = False
        return self._harmless[amounts]

    def waits_for_others_only(self) -> bool:
        """Return whether the head might fit with all jobs of this daemon still running."""
        try:
            return self._fits(self._after([thing for thing in self._things if not thing.ours]))
        except UsageError:
            return True

    def admit(self, leases: Sequence[Lease], ends_at: float | None) -> None:
        """Take note of a job that is started before the head: from now on it runs beside everything that is asked."""
        amounts = amounts_of(leases, self._grounds)
        if amounts:
            self._things.append(Release(amounts, ours=True, ends_at=ends_at))
            self._harmless.clear()

    def _is_harmless(self, candidate: Release) -> bool:
        if not self._fits(self._after(self._things, candidate)):
            return False
        if self._smallest is None:
            self._smallest = list(self._smallest_ends())
        for ended in self._smallest:
            if not self._may_check() or not self._fits(self._after(ended, candidate)):
                return False
        return bool(self._checks)

    def _may_check(self) -> bool:
        """Return whether one more set of ends may be checked."""
        self._checks = max(0, self._checks - 1)
        return self._checks > 0

    def _smallest_ends(self) -> Iterator[tuple[Release, ...]]:
        """Yield the smallest sets of ends after which the head fits, until the bound is met."""
        kinds = [list(same) for _, same in groupby(sorted(self._things, key=_kind), key=_kind)]
        found: list[tuple[int, ...]] = []
        level: list[tuple[int, ...]] = [()]
        while level:
            waiting = []
            for taken in _one_more(level, kinds):
                if not self._may_check():
                    return
                if any(all(taken.count(i) >= one.count(i) for i in one) for one in found):
                    continue
                ended = tuple(kinds[i][taken[:n].count(i)] for n, i in enumerate(taken))
                if self._fits(self._after(ended)):
                    found.append(taken)
                    yield ended
                else:
                    waiting.append(taken)
            level = waiting

    def _after(self, ended: Iterable[Release], beside: Release | None = None) -> list[DeviceCapacity]:
        """Return the devices when everything of `ended` has ended and `beside` runs."""
        left = list(self._things)
        for thing in ended:
            left.remove(thing)
        if beside is not None:
            left.append(beside)
        leased, tenants, used = ([0] * len(self._grounds) for _ in range(3))
        for thing in left:
            for place, mib in thing.amounts:
                if thing.foreign:
                    used[place] = 1
                else:
                    leased[place] += mib
                    tenants[place] += 1
        return [_with(budget, *held) for budget, *held in zip(self._grounds, leased, tenants, used, strict=True)]


def things_of(
    grounds: Sequence[DeviceCapacity], leases: Sequence[Lease], ends: Mapping[tuple[str, str], float | None]
) -> list[Release]:
    """Return all that is on `grounds`. `ends` has this daemon's running jobs, by id and directory, with their ends."""
    jobs: dict[tuple[str, str], list[Lease]] = {}
    for lease in leases:
        jobs.setdefault((lease.job_label, lease.run_dir), []).append(lease)
    things = []
    for (label, run_dir), mine in jobs.items():
        amounts = amounts_of(mine, grounds)
        known = next((key for key in ((label, run_dir), (label, "")) if key in ends), None)
        if amounts:
            things.append(Release(amounts, ours=known is not None, ends_at=None if known is None else ends[known]))
    for place, budget in enumerate(grounds):
        if budget.foreign_mib or budget.foreign:
            things.append(Release(((place, budget.foreign_mib),), foreign=True))
    return things


def amounts_of(leases: Iterable[Lease], grounds: Sequence[DeviceCapacity]) -> _Amounts:
    """Return what `leases` take of the devices `grounds`: their places there, each with MiB; all of a whole device."""
    places = {budget.device.uuid: place for place, budget in enumerate(grounds)}
    taken: dict[int, int] = {}
    for lease in leases:
        if lease.device_uuid in places:
            place = places[lease.device_uuid]
            mib = grounds[place].total_mib if lease.whole else lease.share_mib
            taken[place] = taken.get(place, 0) + mib
    return tuple(sorted(taken.items()))


def _kind(thing: Release) -> tuple[bool, _Amounts]:
    return thing.foreign, thing.amounts


def _one_more(level: Iterable[tuple[int, ...]], kinds: Sequence[Sequence[Release]]) -> Iterator[tuple[int, ...]]:
    """Yield each of `level` with one thing more; kinds rise, so that no set comes twice."""
    for taken in level:
        for i in range(taken[-1] if taken else 0, len(kinds)):
            if taken.count(i) < len(kinds[i]):
                yield (*taken, i)


def _with(budget: DeviceCapacity, leased: int, tenants: int, used: int) -> DeviceCapacity:
    """Return the device with `leased` MiB of `tenants` leases, and with or without the processes of others."""
    if not used:
        budget = replace(budget, foreign_mib=0, foreign=())
    computing = any("C" in process.kind for process in budget.foreign)
    return replace(budget, leased_mib=leased, taken=budget.alone and (bool(tenants) or computing))
