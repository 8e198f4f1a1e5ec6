"""What is asked and what is given: a request, and the plan that answers it."""

import msgspec

from gpusched.model.device import Inventory
from gpusched.model.footprint import MeasuredUse
from gpusched.model.workload import Devices, Memory

__all__ = ["DevicePlan", "DeviceShare", "Plan", "Replica", "ReplicaSpec", "Request", "RoleRequest"]


class RoleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`count` replicas of a role, each with `memory` on one device, or with whole `devices`, or without a device.

    `threads` None: their part of the CPUs, `least_threads` or more if there are enough. `low_cpu`: they hardly use one,
    so the others share the CPUs as if these were not there. `usual`: a person has typed no number, so that of replicas
    that would have a device there is at most one for each CPU where there is none. `context_mib`: what one takes on a
    device before it allocates anything, None where that is not known of this role. `measured`: what its replicas used
    before.
    """

    name: str
    count: int
    memory: Memory | None
    devices: Devices | None = None
    threads: int | None = None
    least_threads: int = 1
    low_cpu: bool = False
    usual: bool = False
    context_mib: int | None = None
    measured: MeasuredUse | None = None

    @property
    def on_device(self) -> bool:
        """Whether its replicas need a device, or several."""
        return self.memory is not None or self.devices is not None

    def context_or(self, usual_mib: int) -> int:
        """Return what one replica takes on a device before it allocates anything, `usual_mib` where it is not known."""
        return usual_mib if self.context_mib is None else self.context_mib


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for. The first role that asks for a `share` is the one that takes what is left over."""

    workload: str
    roles: tuple[RoleRequest, ...]


class DeviceShare(msgspec.Struct, frozen=True, kw_only=True):
    """A share of one device, in MiB."""

    device_index: int
    device_uuid: str
    share_mib: int


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """Where one process goes and what it gets. Memory in MiB, `fraction` = limit / device total in 1/10 000.

    Without a device, `device_uuid` is None and all amounts are 0. `cpus` are the CPUs it may run on, near its device.
    `further` are the devices after the first of a replica that has several whole ones; the limit holds for each.
    `whole`: it has its devices to itself. `processes`: how many of it use a device at the same time; the context is
    that of all of them, the limit their sum, and `process_limit_mib` and `process_fraction` are what each may have.
    """

    name: str
    role: str
    rank: int
    device_index: int | None = None
    device_uuid: str | None = None
    limit_mib: int = 0
    context_mib: int = 0
    fraction: int = 0
    cpus: tuple[int, ...] = ()
    threads: int = 1
    further: tuple[DeviceShare, ...] = ()
    whole: bool = False
    processes: int = 1

    @property
    def share_mib(self) -> int:
        """What the replica costs its device: limit + context."""
        return self.limit_mib + self.context_mib

    @property
    def process_limit_mib(self) -> int:
        """What a framework may allocate in each of its processes."""
        return self.limit_mib // self.processes

    @property
    def process_fraction(self) -> int:
        """That limit as a part of the device, in 1/10 000."""
        return self.fraction // self.processes


class DevicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the plan, and how its plannable memory came about; all in MiB.

    plannable = total - reserved - foreign - leased - headroom, never below 0.
    """

    index: int
    uuid: str
    name: str
    label: str
    total_mib: int
    reserved_mib: int
    foreign_mib: int
    leased_mib: int
    headroom_mib: int
    plannable_mib: int
    planned_mib: int
    replicas: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: every replica's place and share, with the reasons, in the devices' order."""

    inventory: Inventory
    request: Request
    policy: str
    devices: tuple[DevicePlan, ...]
    replicas: tuple[Replica, ...]
    why: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """Replicas per device, such as (3, 10, 10, 10)."""
        return tuple(len(device.replicas) for device in self.devices)


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process, expanded: everything a supervisor or an engine needs to start it. `env` is the whole difference."""

    replica: Replica
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
