"""When the head of a queue starts, as a distribution, and whether a job that passes it makes it start later.

Some futures are imagined. In each, every running job ends at a time that is drawn of those that it may end at; so the
head starts at a time.
"""

import math
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from random import Random
from statistics import median
from typing import Final, NamedTuple

from gpusched.scheduling.run_times import RunTimes

__all__ = [
    "BY_STRATA",
    "FUTURES",
    "DeviceForecast",
    "DeviceWait",
    "HeadForecast",
    "Tenant",
    "WholeForecast",
    "drawn",
    "drawn_ends",
]

_Pick = Callable[[tuple[float, ...]], tuple[float, ...]]

FUTURES: Final = 24
_ORDERS: Final = 64
_STRATA: Final = 6
"""Of each sixth future, and so of each third, the ends of a job are spread evenly over its distribution."""

BY_STRATA: Final = tuple(sorted(range(FUTURES), key=lambda future: future % _STRATA))
"""The futures in an order in which the first few show most of a distribution."""


class Tenant(NamedTuple):
    """What holds `mib` of a device: when it ends in each future, in Unix seconds."""

    ends: tuple[float, ...]
    mib: int


class DeviceWait(NamedTuple):
    """A device that the head could be on: how many MiB must become free before it has room there, and of whom."""

    lacks_mib: int
    tenants: tuple[Tenant, ...]


class HeadForecast(ABC):
    """When the head starts: `starts` has the moment in each future, in Unix seconds; math.inf for never."""

    starts: tuple[float, ...]

    def __init__(self, now: float) -> None:
        self._now = now

    @property
    def expected(self) -> float:
        """The median of the starts, of those futures in which it starts; math.inf if there is none."""
        return median([start for start in self.starts if start < math.inf] or [math.inf])

    def in_time(self, run_times: RunTimes) -> float:
        """Return how probably a job of such run times ends before the head starts."""
        return _in_time(run_times, self.starts, self._now)

    @abstractmethod
    def expected_beside(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> float:
        """Return when the head would be expected if a job were started; see `admit`. math.inf: it is not known."""

    @abstractmethod
    def admit(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> None:
        """Note that a job was started that has so much of the head's devices, and ends so. Devices go by places."""


class WholeForecast(HeadForecast):
    """The starts of a head whose parts have to be seen together: `found` returns them, by all that runs.

    It is called `most` times at the most.
    """

    def __init__(self, found: Callable[[], tuple[float, ...]], most: int, now: float) -> None:
        super().__init__(now)
        self._found, self._more = found, most
        self.starts = found()

    def in_time(self, run_times: RunTimes) -> float:
        """Return how probably a job ends before the head starts; 0 once it takes too long to find that out again."""
        return super().in_time(run_times) if self._more else 0.0

    def expected_beside(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> float:
        """Return math.inf: to find it out would take too long, but for a job that has none of the head's devices."""
        del ends
        return math.inf if amounts else self.expected

    def admit(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> None:
        """Note that a job was started, of which `found` knows."""
        del ends
        if amounts:
            self._more = max(0, self._more - 1)
            self.starts = self._found() if self._more else self.starts


class DeviceForecast(HeadForecast):
    """The starts of a head that needs room on `number` of the devices, each by itself."""

    def __init__(self, devices: Mapping[int, DeviceWait], number: int, now: float) -> None:
        super().__init__(now)
        self._devices, self._number = dict(devices), number
        self._room = {place: _rooms(device) for place, device in devices.items()}
        self.starts = self._starts_with(self._room)

    def expected_beside(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> float:
        """Return when the head would be expected if a job were started."""
        beside = {place: _rooms(_with(self._devices[place], mib, ends)) for place, mib in amounts.items()}
        return median(self._starts_with(self._room | beside))

    def admit(self, amounts: Mapping[int, int], ends: tuple[float, ...]) -> None:
        """Note that a job was started."""
        for place, mib in amounts.items():
            self._devices[place] = _with(self._devices[place], mib, ends)
            self._room[place] = _rooms(self._devices[place])
        self.starts = self._starts_with(self._room)

    def _starts_with(self, room: Mapping[int, Sequence[float]]) -> tuple[float, ...]:
        if len(room) < self._number:
            return (math.inf,) * FUTURES
        futures = zip(*room.values(), strict=True)
        return tuple([max(self._now, sorted(rooms)[self._number - 1]) for rooms in futures])


def _with(device: DeviceWait, mib: int, ends: tuple[float, ...]) -> DeviceWait:
    """Return a device with one tenant more, which must be gone as well where the head wants it alone, or all of it."""
    return device._replace(lacks_mib=device.lacks_mib + mib, tenants=(*device.tenants, Tenant(ends, mib)))


@lru_cache(maxsize=1024)
def _in_time(run_times: RunTimes, starts: tuple[float, ...], now: float) -> float:
    return sum(_part_over(run_times, start - now) for start in starts) / FUTURES


def _part_over(run_times: RunTimes, seconds: float) -> float:
    """Return how much of a distribution is over after so long; nothing where it is not known how long that is."""
    return 0.0 if seconds == math.inf else bisect_right(run_times, seconds) / len(run_times)


def _rooms(device: DeviceWait) -> tuple[float, ...]:
    """Return when the head has room on a device in each future."""
    if device.lacks_mib <= 0:
        return (-math.inf,) * FUTURES
    spare = sum(tenant.mib for tenant in device.tenants) - device.lacks_mib
    if spare < 0:
        return (math.inf,) * FUTURES
    if len(device.tenants) == 1:
        return device.tenants[0].ends
    if all(tenant.mib > spare for tenant in device.tenants):  # all of them must be gone
        return tuple(map(max, zip(*(tenant.ends for tenant in device.tenants), strict=True)))
    return tuple(_room_at(device, i) for i in range(FUTURES))


def _room_at(device: DeviceWait, future: int) -> float:
    lacks = device.lacks_mib
    for end, mib in sorted((tenant.ends[future], tenant.mib) for tenant in device.tenants):
        lacks -= mib
        if lacks <= 0:
            return end
    return math.inf


def drawn_ends(job: str, left_s: RunTimes, now: float) -> tuple[float, ...]:
    """Return when a job ends in each future, in Unix seconds: each part of its distribution once."""
    return tuple([now + left for left in drawn(job, left_s)])


def drawn(job: str, run_times: RunTimes) -> tuple[float, ...]:
    """Return how long a job runs in each future: each part of its distribution once.

    The order depends on the job's id alone, so that a decision can be reproduced.
    """
    return _in_order(zlib.crc32(job.encode()) % _ORDERS)(_each_part(len(run_times))(run_times))


@lru_cache(maxsize=1024)
def _each_part(length: int) -> _Pick:
    """Return what takes FUTURES of `length` values: the middle one of each of as many equal parts."""
    return itemgetter(*((2 * i + 1) * length // (2 * FUTURES) for i in range(FUTURES)))


@cache
def _in_order(number: int) -> _Pick:
    random, rows = Random(number), [list(range(begin, begin + _STRATA)) for begin in range(0, FUTURES, _STRATA)]  # noqa: S311 (no secret)
    for row in rows:
        random.shuffle(row)
    columns = [random.sample(column, len(column)) for column in zip(*rows, strict=True)]
    return itemgetter(*chain.from_iterable(zip(*columns, strict=True)))
