"""From numbers per device to replicas: names, limits, CPUs and threads. It must not decide how many go where."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from gpusched.model.device import Device, Inventory
from gpusched.model.plan import DevicePlan, DeviceShare, Replica, Request, RoleRequest
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.problem import PackingProblem
from gpusched.planner.whole_devices import DeviceSlice, WholeDeviceAssignment
from gpusched.units import FRACTION_ONE, fraction_of

__all__ = ["Placement", "device_plan", "near_all", "replica_on", "replicas_without_devices", "threads_by_share"]


class _Cores(NamedTuple):
    """The CPUs that some replicas share, and how many threads each of these replicas should have."""

    cpus: tuple[int, ...]
    threads: int


class Placement(NamedTuple):
    """For each device of `capacities`, how many replicas of each role it takes. `cpus` are those this process may use.

    `whole` has the devices of those that have some to themselves; nothing else is on these.
    No elastic replica gets less than `limit_mib` that may have as much; what is left over on a device goes to its share
    replicas.
    """

    request: Request
    problem: PackingProblem
    limit_mib: int
    capacities: tuple[DeviceCapacity, ...]
    numbers: list[list[int]]
    cpus: tuple[int, ...]
    whole: WholeDeviceAssignment

    def replicas_and_devices(self) -> tuple[tuple[Replica, ...], tuple[DevicePlan, ...]]:
        """Return the replicas, role by role and numbered in the order of devices, and what each device holds."""
        cpus_near = [_near(capacity.device, self.cpus) for capacity in self.capacities]
        deviceless = sum(role.count for role in self.request.roles if not role.on_device and not role.low_cpu)
        sharing = Counter({self.cpus: deviceless})
        sharing.update(near_all(pieces, self.cpus) for pieces in self.whole.values())
        for cpus, numbers in zip(cpus_near, self.numbers, strict=True):
            sharing[cpus] += sum(numbers)
        cores = {cpus: _cores(cpus, number) for cpus, number in sharing.items()}
        by_role = [list(self._whole(role, cores)) for role in self.request.roles]
        alone = {uuid: replica for mine in by_role for replica in mine for uuid in _uuids(replica)}
        devices = []
        for capacity, cpus, numbers in zip(self.capacities, cpus_near, self.numbers, strict=True):
            here = [alone[capacity.device.uuid]] if capacity.device.uuid in alone else []
            for role, limits, mine in zip(self.request.roles, self._limits(capacity, numbers), by_role, strict=True):
                placed = list(self._on_device(role, limits, len(mine), capacity, cores[cpus]))
                mine.extend(placed)
                here += placed
            devices.append(device_plan(capacity, *here))
        for role, mine in zip(self.request.roles, by_role, strict=True):
            if not role.on_device:
                mine.extend(_deviceless(role, cores[self.cpus]))
        return tuple(replica for mine in by_role for replica in mine), tuple(devices)

    def _whole(self, role: RoleRequest, cores: Mapping[tuple[int, ...], _Cores]) -> Iterator[Replica]:
        for rank in range(role.count if role.devices is not None else 0):
            pieces = self.whole[f"{role.name}.{rank}"]
            mine = cores[near_all(pieces, self.cpus)]
            replica = replica_on(pieces, role.name, rank, self._context_mib(role))
            yield replace(replica, cpus=mine.cpus, threads=_threads(role, mine), whole=True)

    def _limits(self, capacity: DeviceCapacity, numbers: Sequence[int]) -> list[list[int]]:
        """Return the limits on one device, role by role: what is left over goes to the first role with a share here.

        What that may not have goes to the next one.
        """
        needs = self.problem.needs
        limits = [
            [need.limit_mib(self.limit_mib) if need.share is None else need.floor_mib(capacity.total_mib)] * number
            for need, number in zip(needs, numbers, strict=True)
        ]
        taken = sum(sum(mine) + len(mine) * need.context_mib for need, mine in zip(needs, limits, strict=True))
        left = capacity.plannable_mib - taken
        for i, need in enumerate(needs):
            if need.share is not None and limits[i]:
                each, rest = divmod(left, len(limits[i]))
                before = sum(limits[i])
                limits[i] = [min(need.max_mib, mib + each + (rank < rest)) for rank, mib in enumerate(limits[i])]
                left -= sum(limits[i]) - before
        return limits

    def _on_device(
        self, role: RoleRequest, limits: Sequence[int], first_rank: int, capacity: DeviceCapacity, cores: _Cores
    ) -> Iterator[Replica]:
        context_mib = self._context_mib(role)
        threads = _threads(role, cores)
        for rank, mib in enumerate(limits, start=first_rank):
            replica = replica_on([DeviceSlice(capacity, mib + context_mib)], role.name, rank, context_mib)
            yield replace(replica, cpus=cores.cpus, threads=threads)

    def _context_mib(self, role: RoleRequest) -> int:
        return self.problem.needs[self.request.roles.index(role)].context_mib


def _near(device: Device, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of `cpus` that are near the device, or all of them if none is known to be."""
    return _common(device.cpus, cpus) or cpus


@lru_cache(maxsize=256)
def _common(some: tuple[int, ...], cpus: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*some} & {*cpus}))


def threads_by_share(parts: Mapping[str, int], inventory: Inventory) -> int:
    """Return with how many threads a process computes that has `parts` of devices, by uuid, in 1/10 000; 1 at least.

    The CPUs near a device are its own together with the other devices that they are near to, and of its part of them
    a process gets the part that it has of the device.
    """
    devices = [one for one in inventory.devices if not (one.mig_mode and one.mig_index is None)]
    places = {device.uuid: _near(device, inventory.cpus) for device in devices}
    sharing = Counter(places.values())
    whole = sum(len(places[uuid]) * part // sharing[places[uuid]] for uuid, part in parts.items() if uuid in places)
    return max(1, whole // FRACTION_ONE)


def near_all(pieces: Sequence[DeviceSlice], cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of `cpus` that are near any of the devices."""
    return tuple(sorted({cpu for piece in pieces for cpu in _near(piece.capacity.device, cpus)}))


def replica_on(pieces: Sequence[DeviceSlice], role: str, rank: int, context_mib: int) -> Replica:
    """Return a replica that has `pieces`, of which the first is the smallest: its limit holds on each.

    The fraction is of the largest device, so that it is within the limit on each. CPUs are for the caller to set.
    """
    first, *further = pieces
    limit = first.share_mib - context_mib
    return Replica(
        name=f"{role}.{rank}",
        role=role,
        rank=rank,
        device_index=first.capacity.device.index,
        device_uuid=first.capacity.device.uuid,
        limit_mib=limit,
        context_mib=context_mib,
        fraction=fraction_of(limit, max(piece.capacity.total_mib for piece in pieces)),
        further=tuple(
            DeviceShare(
                device_index=piece.capacity.device.index,
                device_uuid=piece.capacity.device.uuid,
                share_mib=piece.share_mib,
            )
            for piece in further
        ),
    )


def replicas_without_devices(request: Request, cpus: tuple[int, ...]) -> tuple[Replica, ...]:
    """Return all replicas, role by role, on a host without a GPU."""
    cores = _cores(cpus, sum(role.count for role in request.roles if not role.low_cpu))
    return tuple(replica for role in request.roles for replica in _deviceless(role, cores))


def _uuids(replica: Replica) -> Iterator[str]:
    if replica.device_uuid is not None:
        yield replica.device_uuid
    yield from (share.device_uuid for share in replica.further)


def _deviceless(role: RoleRequest, cores: _Cores) -> Iterator[Replica]:
    for rank in range(role.count):
        threads = _threads(role, cores)
        yield Replica(name=f"{role.name}.{rank}", role=role.name, rank=rank, cpus=cores.cpus, threads=threads)


def _threads(role: RoleRequest, cores: _Cores) -> int:
    if role.threads is not None:
        return role.threads
    part = 1 if role.low_cpu else cores.threads
    return max(part, min(role.least_threads, len(cores.cpus)))


def _cores(cpus: tuple[int, ...], replicas: int) -> _Cores:
    return _Cores(cpus, max(1, len(cpus) // max(1, replicas)))


def device_plan(capacity: DeviceCapacity, *replicas: Replica) -> DevicePlan:
    """Return what is planned of one device: the shares that `replicas` have on it, first or further."""
    uuid = capacity.device.uuid
    planned = sum(replica.share_mib for replica in replicas if replica.device_uuid == uuid)
    planned += sum(share.share_mib for each in replicas for share in each.further if share.device_uuid == uuid)
    return DevicePlan(
        index=capacity.device.index,
        uuid=uuid,
        name=capacity.device.name,
        label=capacity.device.label,
        total_mib=capacity.total_mib,
        reserved_mib=capacity.reserved_mib,
        foreign_mib=capacity.foreign_mib,
        leased_mib=capacity.leased_mib,
        headroom_mib=capacity.headroom_mib,
        plannable_mib=capacity.plannable_mib,
        planned_mib=planned,
        replicas=tuple(replica.name for replica in replicas),
    )
