"""When the head of a queue starts, as a distribution, and how probably a job that passes it makes it start later.

Some futures are imagined. In each, every running job ends at a time that is drawn of those that it may end at; so the
head starts at a time, and on devices. A job that passes the head delays it in a future in which it still runs at that
time on a device without which the head has no place then.
"""

import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from functools import cache
from random import Random
from statistics import median
from typing import Final, NamedTuple

from gpusched.daemon.run_times import RunTimes

__all__ = ["FUTURES", "DeviceWait", "HeadForecast", "Tenant", "drawn_ends"]

FUTURES: Final = 24
_ORDERS: Final = 64


class Tenant(NamedTuple):
    """What holds `mib` of a device: when it ends in each future, in Unix seconds."""

    ends: tuple[float, ...]
    mib: int


class DeviceWait(NamedTuple):
    """A device that the head could be on: how many MiB must become free before it has room there.

    `alone`: it has none beside anything that is started now.
    """

    lacks_mib: int
    tenants: tuple[Tenant, ...]
    alone: bool


class HeadForecast:
    """The starts of a head that needs room on `number` of the devices, each by itself."""

    def __init__(self, devices: Mapping[str, DeviceWait], number: int, now: float) -> None:
        self._devices, self._number, self._now = dict(devices), number, now
        self._room = {uuid: [_room_at(device, i, 0) for i in range(FUTURES)] for uuid, device in devices.items()}
        self._starts = self._starts_now()

    @property
    def starts(self) -> tuple[float, ...]:
        """When the head starts in each future, in Unix seconds; math.inf for never."""
        return self._starts

    @property
    def expected(self) -> float:
        """The median of the starts."""
        return median(self._starts)

    def in_time(self, run_times: RunTimes) -> float:
        """Return how probably a job of such run times ends before the head starts."""
        return sum(_part_over(run_times, start - self._now) for start in self._starts) / FUTURES

    def beside(self, amounts: Mapping[str, int]) -> float:
        """Return how probably the head has a place at its start beside a job with these MiB of devices."""
        return sum(self._has_place_beside(amounts, i, start) for i, start in enumerate(self._starts)) / FUTURES

    def undelayed(self, amounts: Mapping[str, int], run_times: RunTimes) -> float:
        """Return how probably the head starts no later for a job with these MiB of devices, of such run times."""
        parts = (
            1.0 if self._has_place_beside(amounts, i, start) else _part_over(run_times, start - self._now)
            for i, start in enumerate(self._starts)
        )
        return sum(parts) / FUTURES

    def admit(self, amounts: Mapping[str, int], ends: tuple[float, ...]) -> None:
        """Note that a job was started that has so much of the devices, and ends so."""
        for uuid, mib in amounts.items():
            device = self._devices.get(uuid)
            if device is not None:
                tenants = (*device.tenants, Tenant(ends, mib))
                self._devices[uuid] = device = device._replace(lacks_mib=device.lacks_mib + mib, tenants=tenants)
                self._room[uuid] = [_room_at(device, i, 0) for i in range(FUTURES)]
        self._starts = self._starts_now()

    def _starts_now(self) -> tuple[float, ...]:
        rooms = list(self._room.values())
        if len(rooms) < self._number:
            return (math.inf,) * FUTURES
        return tuple(max(self._now, sorted(room[i] for room in rooms)[self._number - 1]) for i in range(FUTURES))

    def _has_place_beside(self, amounts: Mapping[str, int], future: int, start: float) -> bool:
        """Return whether the head has a place at its start, though the job runs on for ever."""
        mine = [uuid for uuid in amounts if uuid in self._devices and self._room[uuid][future] <= start]
        if not mine:
            return True
        if start == math.inf:
            return False
        there = sum(room[future] <= start for room in self._room.values()) - len(mine)
        there += sum(_room_at(self._devices[uuid], future, amounts[uuid]) <= start for uuid in mine)
        return there >= self._number


def _part_over(run_times: RunTimes, seconds: float) -> float:
    """Return how much of a distribution is over after so long; nothing where it is not known how long that is."""
    return 0.0 if seconds == math.inf else bisect_right(run_times, seconds) / len(run_times)


def _room_at(device: DeviceWait, future: int, beside_mib: int) -> float:
    """Return when the head has room on a device in one future, beside a job of so many MiB that never ends."""
    lacks = device.lacks_mib + beside_mib
    if lacks <= 0:
        return -math.inf
    if device.alone and beside_mib:
        return math.inf
    for end, mib in sorted((tenant.ends[future], tenant.mib) for tenant in device.tenants):
        lacks -= mib
        if lacks <= 0:
            return end
    return math.inf


def drawn_ends(job: str, left_s: RunTimes, now: float) -> tuple[float, ...]:
    """Return when a job ends in each future, in Unix seconds: each part of its distribution once.

    The order depends on the job's id alone, so that a decision can be reproduced.
    """
    quantiles = [now + left_s[(2 * i + 1) * len(left_s) // (2 * FUTURES)] for i in range(FUTURES)]
    return tuple(quantiles[i] for i in _order(zlib.crc32(job.encode()) % _ORDERS))


@cache
def _order(number: int) -> tuple[int, ...]:
    order = list(range(FUTURES))
    Random(number).shuffle(order)  # noqa: S311 (no secret)
    return tuple(order)
