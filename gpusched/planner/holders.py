"""Who holds the memory of a device, as text: leases by job, and the processes of others, largest first.

Since when a process runs is the host's knowledge and comes as a function; a time is written in the host's time zone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gpusched.model.device import DeviceProcess
from gpusched.model.lease import Lease
from gpusched.planner.capacity import DeviceCapacity
from gpusched.units import format_mib

__all__ = ["Began", "clock", "held", "held_lines"]

Began = Callable[[int], float | None]
"""When the process of this pid began, in Unix seconds; None if unknown."""

_MOST_HOLDERS: Final = 2
_MOST_LINES: Final = 8
_HALF_A_DAY_S: Final = 43_200.0


def held(capacity: DeviceCapacity, leases: Iterable[Lease], began: Began, now: float) -> str:
    """Return `6334 MiB leased to run-3 since 09:12, 9318 MiB held by pid 4711 of user bob`, "" if nothing is held.

    `leases` may be those of other devices too. Memory without a known holder is listed as such. `now`: see `clock`.
    """
    here = [lease for lease in leases if lease.device_uuid == capacity.device.uuid]
    holders = sorted([*_leased(here, now), *_foreign(capacity, began, now)], key=lambda holder: -holder[0])
    texts = [text for _, text in holders[:_MOST_HOLDERS]]
    more = len(holders) - len(texts)
    return ", ".join([*texts, f"the rest by {more} more"] if more else texts)


def held_lines(capacities: Iterable[DeviceCapacity], leases: Sequence[Lease]) -> list[str]:
    """Return `GPU 1: 90 of 100 MiB free, 10 MiB leased to snake-4` for each device of which anything is held."""
    # There is no clock here: leases of the same half a day are written without a date.
    latest = max((lease.since for lease in leases), default=0.0)
    lines = [
        f"GPU {capacity.device.label}: {capacity.plannable_mib} of {capacity.idle_mib} MiB free, {holding}"
        for capacity in capacities
        if (holding := held(capacity, leases, lambda _: None, latest))
    ]
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"and {more} more"] if more > 0 else lines


def clock(moment: float, now: float) -> str:
    """Return `09:12` for a time of the last twelve hours, else `12 Mar 09:12`; `` for a time that is not known (0)."""
    if not moment:
        return ""
    return time.strftime("%H:%M" if 0 <= now - moment < _HALF_A_DAY_S else "%d %b %H:%M", time.localtime(moment))


def _leased(leases: Sequence[Lease], now: float) -> Iterator[tuple[int, str]]:
    """Yield what each job holds in MiB, and as text."""
    jobs: dict[tuple[str, str], list[Lease]] = {}
    for lease in leases:
        jobs.setdefault((lease.job_label, lease.run_dir), []).append(lease)
    for (label, _), mine in jobs.items():
        mib = sum(lease.share_mib for lease in mine)
        if mib:
            since = min((lease.since for lease in mine if lease.since), default=0.0)
            alone = " (as a whole GPU)" if any(lease.whole for lease in mine) else ""
            yield mib, f"{mib} MiB leased to {label}{alone}{_since(since, now)}"


def _foreign(capacity: DeviceCapacity, began: Began, now: float) -> Iterator[tuple[int, str]]:
    """Yield what each process of others holds, what holders of leases use beyond them, and what is used unseen."""
    for process in capacity.foreign:
        if process.memory_mib is None:
            yield 0, f"used by {_process(process, began, now)}"
        elif process.memory_mib:
            yield process.memory_mib, f"{format_mib(process.memory_mib)} held by {_process(process, began, now)}"
    if capacity.beyond_mib:
        yield capacity.beyond_mib, f"{format_mib(capacity.beyond_mib)} used by jobs beyond their leases"
    if capacity.unseen_mib > capacity.drivers_mib:
        yield capacity.unseen_mib, f"{format_mib(capacity.unseen_mib)} held by processes that cannot be seen from here"


def _process(process: DeviceProcess, began: Began, now: float) -> str:
    return f"pid {process.pid}{_of(process.user)}{_since(began(process.pid) or 0.0, now)}"


def _of(user: str | None) -> str:
    return f" of user {user}" if user else ""


def _since(moment: float, now: float) -> str:
    return f" since {clock(moment, now)}" if moment else ""
