"""Whole devices: which are whole, and which of them each replica gets that asks for some.

A whole device is one on which nothing computes: no lease, no foreign compute process, and at least half of what it
has when idle is left beside a desktop, or beside processes that cannot be seen from here. A MIG instance counts as a
device, but CUDA shows a process one of them at the most, whatever is listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpusched.model.plan import Request
from gpusched.planner.capacity import DeviceCapacity

__all__ = ["DeviceSlice", "WholeDeviceAssignment", "allotments", "most_whole", "whole_devices", "with_all"]


class DeviceSlice(NamedTuple):
    """What a replica gets of one device, in MiB."""

    capacity: DeviceCapacity
    share_mib: int


WholeDeviceAssignment = Mapping[str, tuple[DeviceSlice, ...]]
"""The whole devices of replicas, by their names. That with the least memory is first: one limit holds for each."""


def whole_devices(
    number: int, capacities: Sequence[DeviceCapacity], context_mib: int
) -> tuple[DeviceSlice, ...] | None:
    """Return `number` whole devices for one replica, those with the most memory; None if there are fewer."""
    dealt = _dealt({"": number}, _by_most(_whole(capacities, context_mib)), capacities)
    return None if dealt is None else dealt[""]


def most_whole(capacities: Sequence[DeviceCapacity], context_mib: int) -> int:
    """Return how many whole devices one replica could have."""
    whole = _whole(capacities, context_mib)
    apart = sum(piece.capacity.device.mig_index is None for piece in whole)
    return max(apart, min(1, len(whole)))


def allotments(
    request: Request, capacities: Sequence[DeviceCapacity], context_mib: int
) -> Iterator[WholeDeviceAssignment]:
    """Yield ways to give whole devices to all replicas that ask for some; one, an empty one, if none does.

    The first takes those with the most memory, of equal ones the lower index. The others leave the most to the rest of
    the request: if it has a place beside any way to choose, then beside one of these. For of two devices that take as
    many processes the larger one is of more use to the rest; so only how many of those that let one process in
    (`DeviceCapacity.alone`) are taken has to be tried, and of either sort always the smallest.
    """
    wishes = {
        f"{role.name}.{rank}": _number(role.devices)
        for role in request.roles
        if role.devices is not None
        for rank in range(role.count)
    }
    if not wishes:
        yield {}
        return
    whole = _whole(capacities, max(role.context_or(context_mib) for role in request.roles if role.devices is not None))
    for order in (_by_most(whole), *_leaving_most(whole)):
        dealt = _dealt(wishes, order, capacities)
        if dealt is not None:
            yield dealt


def with_all(request: Request, number: int) -> Request:
    """Return the request in which each replica that asks for all devices asks for `number` of them."""
    roles = (replace(role, devices=number) if role.devices == "all" else role for role in request.roles)
    return replace(request, roles=tuple(roles))


def _number(devices: object) -> int:
    return devices if isinstance(devices, int) else 1


def _whole(capacities: Sequence[DeviceCapacity], context_mib: int) -> list[DeviceSlice]:
    return [
        DeviceSlice(capacity, capacity.plannable_mib)
        for capacity in capacities
        if capacity.is_whole and capacity.plannable_mib > context_mib
    ]


def _by_most(whole: Sequence[DeviceSlice]) -> list[DeviceSlice]:
    return sorted(whole, key=lambda piece: -piece.share_mib)


def _leaving_most(whole: Sequence[DeviceSlice]) -> Iterator[list[DeviceSlice]]:
    smallest_first = sorted(whole, key=lambda piece: piece.share_mib)
    alone = [piece for piece in smallest_first if piece.capacity.alone]
    shared = [piece for piece in smallest_first if not piece.capacity.alone]
    for taken in range(len(alone) + 1):
        yield [*alone[:taken], *shared, *alone[taken:]]


def _dealt(
    wishes: Mapping[str, int], order: Sequence[DeviceSlice], capacities: Sequence[DeviceCapacity]
) -> WholeDeviceAssignment | None:
    """Return the number of pieces for each name, the first of `order` that it may have; None if they are not enough.

    A name that wants several comes first, because a MIG instance is of no use to it.
    """
    if sum(wishes.values()) > len(order):
        return None
    left = list(order)
    dealt: dict[str, tuple[DeviceSlice, ...]] = {}
    for name in sorted(wishes, key=lambda name: wishes[name] <= 1):
        number = wishes[name]
        mine = [piece for piece in left if number <= 1 or piece.capacity.device.mig_index is None][:number]
        if len(mine) < number:
            return None
        left = [piece for piece in left if piece not in mine]
        first = min(mine, key=lambda piece: piece.share_mib, default=None)
        dealt[name] = tuple(sorted(mine, key=lambda piece: (piece is not first, capacities.index(piece.capacity))))
    return dealt
