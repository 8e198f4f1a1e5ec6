"""What a job behind the head of the queue may take without keeping the head waiting longer.

The head is the first job that does not fit now. Things end: each job, and the memory that others use on a device, taken
as one thing. Which of them ends first is unknown; so a job is harmless if the head fits beside it after every set of
ends after which the head would fit without it. Memory that becomes free never turns a fit into none, so that only the
smallest such sets have to be checked. They are counted by how much ends where, because equal things are
interchangeable. The checks are bounded: where there would be too many, nothing is called harmless.

The second way is time: where the known time limits of running jobs give the head its start at a time T at the latest, a
job that is over by T may start whatever it takes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.lease import Lease
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.solve import smallest
from gpusched.scheduling.forecast import FUTURES, DeviceWait, Tenant

__all__ = ["Ends", "HeadReservation", "Release", "amounts_of", "places_of", "releases_of"]

_Amounts = tuple[tuple[int, int], ...]


class Release(NamedTuple):
    """What may end: a job's leases or, with `foreign`, what others use on a device."""

    amounts: _Amounts
    """Places in the row of devices, each with MiB."""
    foreign: bool = False
    ours: bool = False
    """A job of this daemon, whose end makes room for another one among the jobs that may run at a time."""
    ends_at: float | None = None
    """At the latest, in Unix seconds, None if unknown."""
    ends: tuple[float, ...] = ()
    """In each imagined future (see forecast.py); empty: what it is cannot be predicted."""


class Ends(NamedTuple):
    """When a running job ends: `ends_at` and `ends` as in Release."""

    ends_at: float | None = None
    ends: tuple[float, ...] = ()


class HeadReservation:
    """What the head of a queue waits for. `capacities`: of devices that it could be on; `fits` returns if it is there.

    `number`: it fits where `fits` is true of that many single devices; None: where it is true of all of them together.
    Of a single device `fits` sees memory, processes and compute mode, not which one it is: alike ones are asked once.
    `releases` are all that is on them. `checks` bounds how many sets of ends are checked.
    """

    def __init__(
        self,
        capacities: Sequence[DeviceCapacity],
        releases: Iterable[Release],
        fits: Callable[[Sequence[DeviceCapacity]], bool],
        checks: int,
        number: int | None = None,
    ) -> None:
        self._capacities = tuple(capacities)
        self._places = places_of(self._capacities)
        self._fits = fits
        self._number = number
        self._releases = list(releases)
        self._checks = checks
        self._smallest: dict[tuple[int, ...] | None, list[tuple[Release, ...]]] = {}
        self._harmless: dict[_Amounts, bool] = {}
        self._waits_for_others: bool | None = None
        self._alike = tuple(_first_alike(self._capacities))
        self._rooms: dict[tuple[int, ...], bool] = {}
        self._read_devices()

    @cached_property
    def devices(self) -> frozenset[str]:
        """The uuids of the devices that the head could be on."""
        return frozenset(self._places)

    @cached_property
    def shadow_time(self) -> float | None:
        """When the head starts at the latest, by the time limits of what runs; None if these are not enough."""
        ends = [release for release in self._releases if release.ends_at is not None]
        ends.sort(key=lambda release: release.ends_at or 0.0)
        try:
            if not self._fits_after(ends):
                return None
            first = smallest(lambda number: self._fits_after(ends[:number]), 0, len(ends))
        except UsageError:  # not every way can be tried: the planner's word
            return None
        return ends[first - 1].ends_at if first else None

    def never_delays_head(self, leases: Sequence[Lease]) -> bool:
        """Return whether a job with these leases can never be what the head waits for."""
        amounts = amounts_of(leases, self._places)
        if amounts not in self._harmless:
            try:
                self._harmless[amounts] = not amounts or self._is_harmless(Release(amounts))
            except UsageError:
                self._harmless[amounts] = False
        return self._harmless[amounts]

    def waits_for_others_only(self) -> bool:
        """Return whether the head might fit with all jobs of this daemon still running."""
        if self._waits_for_others is None:
            try:
                self._waits_for_others = self._fits_after([one for one in self._releases if not one.ours])
            except UsageError:
                self._waits_for_others = True
        return self._waits_for_others

    def admit(self, leases: Sequence[Lease], ends: Ends) -> None:
        """Take note of a job that is started before the head: from now on it runs beside everything that is asked."""
        amounts = amounts_of(leases, self._places)
        if amounts:
            self._releases.append(Release(amounts, ours=True, ends_at=ends.ends_at, ends=ends.ends))
            self._harmless.clear()
            self._waits_for_others = None
            self._smallest.clear()  # the head may need the end of this one as well now
            self._read_devices()

    def amounts(self, leases: Sequence[Lease]) -> dict[int, int]:
        """Return what `leases` take of the devices that the head could be on, by their places in `waits`, in MiB."""
        return dict(amounts_of(leases, self._places))

    def waits(self, lacking: Callable[[DeviceCapacity], int | None]) -> dict[int, DeviceWait]:
        """Return what the head waits for on each device, by place. `lacking`: MiB that must get free; None: all."""
        found, known = {}, dict[tuple[int, ...], int | None]()
        there: list[list[tuple[bool, Tenant]]] = [[] for _ in self._held]
        for release in self._releases:
            for place, mib in release.amounts:
                there[place].append((release.foreign, Tenant(release.ends or (math.inf,) * FUTURES, max(1, mib))))
        for place, held in enumerate(self._held):
            # What others use may leave room enough: a desktop, or what the driver takes for itself.
            stays = self._room(place, (0, 0, held[2]))
            tenants = tuple(tenant for foreign, tenant in there[place] if not (foreign and stays))
            key = (self._alike[place], *held)
            if key not in known:
                known[key] = lacking(_with(self._capacities[place], *held)) if stays else None
            lacks = known[key]
            whole = sum(tenant.mib for tenant in tenants)
            found[place] = DeviceWait(whole if lacks is None else lacks, tenants)
        return found

    def starts(self, now: float, one_in: int) -> tuple[float, ...]:
        """Return when the head starts in each future by all that runs, in Unix seconds; math.inf for never.

        One in `one_in`, a divisor of FUTURES / 4, is found out, which is what takes time. Where the planner cannot try
        all ways in one of them, nothing is known.
        """
        try:
            found = [self._start_in(future, now) for future in range(0, FUTURES, one_in)]
        except UsageError:
            return (math.inf,) * FUTURES
        return tuple(start for start in found for _ in range(one_in))

    def _start_in(self, future: int, now: float) -> float:
        ending = sorted((release.ends[future], number) for number, release in enumerate(self._releases) if release.ends)
        releases = [self._releases[number] for _, number in ending]
        if not self._fits_after(releases):
            return math.inf
        first = smallest(lambda number: self._fits_after(releases[:number]), 0, len(releases))
        return max(now, ending[first - 1][0]) if first else now

    def _is_harmless(self, candidate: Release) -> bool:
        if not self._fits_after(self._releases, candidate):
            return False
        # A head that needs one device finds it wherever the candidate is not: only ends beside that matter.
        beside = tuple(place for place, _ in candidate.amounts) if self._number == 1 else None
        if beside not in self._smallest:
            self._smallest[beside] = list(self._smallest_ends(beside))
        for ended in self._smallest[beside]:
            if self._is_elsewhere(candidate, ended):
                continue
            if not self._may_check() or not self._fits_after(ended, candidate):
                return False
        return bool(self._checks)

    def _is_elsewhere(self, candidate: Release, ended: Sequence[Release]) -> bool:
        """Return whether the candidate is only where the head has no room, before and after these ends."""
        places = {place for place, _ in candidate.amounts}
        if self._number is None or any(self._has_room[place] for place in places):
            return False
        return places.isdisjoint(place for release in ended for place, _ in release.amounts)

    def _may_check(self) -> bool:
        """Return whether one more set of ends may be checked."""
        self._checks = max(0, self._checks - 1)
        return self._checks > 0

    def _smallest_ends(self, places: tuple[int, ...] | None) -> Iterator[tuple[Release, ...]]:
        """Yield the smallest sets of ends on these devices (None: all) with which the head fits, to the bound."""
        releases = [one for one in self._releases if places is None or any(place in places for place, _ in one.amounts)]
        kinds = [list(same) for _, same in groupby(sorted(releases, key=_kind), key=_kind)]
        if self._are_too_many(len(kinds)):
            self._checks = 0
            return
        level: list[tuple[int, ...]] = [()]
        while level:
            waiting, smaller = [], set(level)
            for taken in _one_more(level, kinds):
                ended = tuple(kinds[i][taken[:n].count(i)] for n, i in enumerate(taken))
                if self._number == 1 and not _share_a_device(ended):  # only what is on the head's device is of use
                    continue
                if not self._may_check():
                    return
                if any(taken[:n] + taken[n + 1 :] not in smaller for n in range(len(taken))):
                    continue  # the head fits with less already
                if self._fits_after(ended):
                    yield ended
                else:
                    waiting.append(taken)
            level = waiting

    def _are_too_many(self, kinds: int) -> bool:
        """Return whether the sets that are too small for the head are more already than may be checked."""
        lacking = (self._number or 1) - sum(self._has_room)
        least = -(-lacking // max((len(release.amounts) for release in self._releases), default=1))
        return math.comb(kinds, max(least - 1, 0)) > self._checks

    def _read_devices(self) -> None:
        """Note what is on each device while everything runs, and whether the head has room on it alone."""
        self._held = [[0, 0, 0] for _ in self._capacities]
        for release in self._releases:
            _hold(self._held, release, 1)
        self._now = (
            () if self._number is not None else tuple(map(_with, self._capacities, *zip(*self._held, strict=True)))
        )
        self._has_room = [self._number is not None and self._room(place, held) for place, held in enumerate(self._held)]

    def _room(self, place: int, held: Sequence[int]) -> bool:
        """Return whether one device has room for the head when it holds so much."""
        key = (self._alike[place], *held)
        if key not in self._rooms:
            self._rooms[key] = self._fits([_with(self._capacities[place], *held)])
        return self._rooms[key]

    def _fits_after(self, ended: Iterable[Release], beside: Release | None = None) -> bool:
        """Return whether the head fits when everything of `ended` has ended and `beside` runs."""
        held = dict[int, list[int]]()
        for release, sign in (*((one, -1) for one in ended), *([(beside, 1)] if beside is not None else [])):
            for place, _ in release.amounts:
                held.setdefault(place, list(self._held[place]))
            _hold(held, release, sign)
        if self._number is None:
            changed = {place: _with(self._capacities[place], *each) for place, each in held.items()}
            return self._fits([changed.get(place, capacity) for place, capacity in enumerate(self._now)])
        more = sum(self._room(place, each) - self._has_room[place] for place, each in held.items())
        return sum(self._has_room) + more >= self._number


def releases_of(
    capacities: Sequence[DeviceCapacity], leases: Sequence[Lease], ends: Mapping[tuple[str, str], Ends]
) -> list[Release]:
    """Return all that is on them. `ends` has this daemon's running jobs, by id and directory, with their ends."""
    jobs: dict[tuple[str, str], list[Lease]] = {}
    for lease in leases:
        jobs.setdefault((lease.job_label, lease.run_dir), []).append(lease)
    releases, places = [], places_of(capacities)
    for (label, run_dir), mine in jobs.items():
        amounts = amounts_of(mine, places)
        known = next((key for key in ((label, run_dir), (label, "")) if key in ends), None)
        if amounts:
            mine_end = Ends() if known is None else ends[known]
            releases.append(Release(amounts, ours=known is not None, ends_at=mine_end.ends_at, ends=mine_end.ends))
    for place, capacity in enumerate(capacities):
        if capacity.foreign_mib or capacity.foreign:
            releases.append(Release(((place, capacity.foreign_mib),), foreign=True))
    return releases


def amounts_of(leases: Iterable[Lease], places: Mapping[str, tuple[int, int]]) -> _Amounts:
    """Return what `leases` take of devices: their places, each with MiB; all of a whole device.

    `places`: the place of each, by its uuid, and its MiB.
    """
    taken: dict[int, int] = {}
    for lease in leases:
        if lease.device_uuid in places:
            place, total_mib = places[lease.device_uuid]
            taken[place] = taken.get(place, 0) + (total_mib if lease.whole else lease.share_mib)
    return tuple(sorted(taken.items()))


def places_of(capacities: Sequence[DeviceCapacity]) -> dict[str, tuple[int, int]]:
    """Return the place of each device in a row, by its uuid, and its MiB."""
    return {capacity.device.uuid: (place, capacity.total_mib) for place, capacity in enumerate(capacities)}


def _first_alike(capacities: Sequence[DeviceCapacity]) -> Iterator[int]:
    """Yield for each device the place of the first one that is equal in all that decides whether a job fits there."""
    first = dict[tuple[object, ...], int]()
    for place, one in enumerate(capacities):
        kind = one.idle_mib, one.foreign_mib, one.drivers_mib, one.computing, one.alone
        yield first.setdefault(kind, place)


def _hold(held: "list[list[int]] | dict[int, list[int]]", release: Release, sign: int) -> None:
    """Add (`sign` 1) or take away (-1) what a thing has of each device: leased MiB, leases, processes of others."""
    for place, mib in release.amounts:
        if release.foreign:
            held[place][2] += sign
        else:
            held[place][0] += sign * mib
            held[place][1] += sign


def _share_a_device(releases: Sequence[Release]) -> bool:
    """Return whether there is a device that each of them is on."""
    return bool(set.intersection(*({place for place, _ in release.amounts} for release in releases)))


def _kind(release: Release) -> tuple[bool, _Amounts]:
    return release.foreign, release.amounts


def _one_more(level: Iterable[tuple[int, ...]], kinds: Sequence[Sequence[Release]]) -> Iterator[tuple[int, ...]]:
    """Yield each of `level` with one thing more; kinds rise, so that no set comes twice."""
    for taken in level:
        for i in range(taken[-1] if taken else 0, len(kinds)):
            if taken.count(i) < len(kinds[i]):
                yield (*taken, i)


def _with(capacity: DeviceCapacity, leased: int, tenants: int, used: int) -> DeviceCapacity:
    """Return the device with `leased` MiB of `tenants` leases, and with or without the processes of others."""
    if not used:
        capacity = replace(capacity, foreign_mib=0, foreign=())
    return replace(capacity, leased_mib=leased, taken=capacity.alone and (bool(tenants) or capacity.computing))
