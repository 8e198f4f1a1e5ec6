"""How much of each device may be planned, and which devices take no replica at all, with the reason in words.

It owns one sum (docs/reference.md): plannable = total - driver reserve - foreign - leased - headroom. It must not know
what is to be placed.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec

from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Holder, Lease
from gpusched.planner.problem import Bin
from gpusched.units import portion

__all__ = ["DeviceCapacity", "device_capacities", "excluded_devices"]

_ONE_PROCESS = ("exclusive_process", "exclusive_thread")


class DeviceCapacity(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One device that may take replicas; memory in MiB. `foreign` are the processes of others that were seen on it.

    Its sums are kept: a pass over a long queue asks for them hundreds of thousands of times.

    `beyond_mib`: the part of `foreign_mib` that holders of leases use beyond them.

    `alone`: its compute mode lets only one process in. `taken`: it is alone and has one.
    """

    device: Device
    total_mib: int
    reserved_mib: int
    foreign_mib: int
    beyond_mib: int
    leased_mib: int
    headroom_mib: int
    foreign: tuple[DeviceProcess, ...]
    alone: bool
    taken: bool

    @cached_property
    def plannable_mib(self) -> int:
        """What may be planned now, never below 0."""
        return max(0, self.idle_mib - self.foreign_mib - self.leased_mib)

    @cached_property
    def idle_mib(self) -> int:
        """What may be planned of the device without leases and foreign processes, never below 0."""
        return max(0, self.total_mib - self.reserved_mib - self.headroom_mib)

    @property
    def now(self) -> Bin:
        """The device as a room of the solver, as it is."""
        room = Bin(self.plannable_mib, self.total_mib, whole=self.is_whole)
        return msgspec.structs.replace(room, most=0 if self.taken else 1) if self.alone else room

    @cached_property
    def is_whole(self) -> bool:
        """Whether nothing computes on the device, and enough of it is left."""
        left = 2 * self.plannable_mib >= self.idle_mib
        return not self.leased_mib and not self.computing and not self.taken and left

    @cached_property
    def computing(self) -> bool:
        """Whether a process of others computes on the device."""
        return any("C" in process.kind for process in self.foreign)

    @property
    def unseen_mib(self) -> int:
        """What is used by no process that can be seen from here."""
        seen = sum(process.memory_mib or 0 for process in self.foreign) + self.beyond_mib
        return max(0, self.foreign_mib - seen)

    @cached_property
    def drivers_mib(self) -> int:
        """What no visible process uses, where that is so little that it is the driver's own."""
        return self.unseen_mib if self.unseen_mib <= self.total_mib // 100 else 0

    @cached_property
    def emptied(self) -> "DeviceCapacity":
        """The device when every lease and every process of others has ended."""
        return msgspec.structs.replace(self, foreign_mib=0, beyond_mib=0, leased_mib=0, foreign=(), taken=False)


def device_capacities(
    inventory: Inventory, leases: Sequence[Lease], headroom: int, only: frozenset[str] | None
) -> tuple[DeviceCapacity, ...]:
    """Return what each device that takes replicas has; `headroom` in 1/10 000, `only` are uuids, None for all."""
    held: dict[str, list[Lease]] = {}
    for lease in leases:
        held.setdefault(lease.device_uuid, []).append(lease)
    chosen = (device for device in inventory.devices if only is None or device.uuid in only)
    return tuple(
        _budget(device, device.memory_total_mib, tuple(held.get(device.uuid, ())), headroom)
        for device in chosen
        if device.memory_total_mib is not None and _unusable(device) is None
    )


def excluded_devices(inventory: Inventory, only: frozenset[str] | None) -> tuple[str, ...]:
    """Return a line for every device that was asked for and takes no replica, but for parents of MIG instances."""
    parents = {device.index for device in inventory.devices if device.mig_index is not None}
    return tuple(
        f"GPU {device.label} takes no replica: {reason}"
        for device in inventory.devices
        if (only is None or device.uuid in only) and (reason := _unusable(device)) is not None
        if not (device.mig_mode and device.mig_index is None and device.index in parents)
    )


def _unusable(device: Device) -> str | None:
    """Return why the device takes no replica, or None if it does."""
    if device.health != "ok":
        if device.problem and device.problem.startswith("drained"):
            return f"it is {device.problem}"
        problem = f" ({device.problem})" if device.problem else ""
        return f"it is lost{problem}" if device.health == "lost" else f"it reports an error{problem}"
    if device.mig_mode and device.mig_index is None:
        return "MIG mode is on and it has no MIG instance; make one with `nvidia-smi mig -cgi`"
    if device.compute_mode == "prohibited":
        return "its compute mode is prohibited; change it with `nvidia-smi -c DEFAULT`"
    if not device.memory_total_mib:
        return "the driver does not report how much memory it has"
    return None


@lru_cache(maxsize=512)  # of one reading: each job that a pass starts asks for all devices again, and few have changed
def _budget(device: Device, total: int, leases: tuple[Lease, ...], headroom: int) -> DeviceCapacity:
    own = {lease.pid: lease.holder for lease in leases if lease.pid is not None} if device.processes else {}
    foreign = tuple(process for process in device.processes if process.pid not in own)
    within, beyond = _used_on_leases(device, leases, own)
    seen = sum(process.memory_mib or 0 for process in foreign)
    alone = device.compute_mode in _ONE_PROCESS
    reserved, kept = device.memory_reserved_mib or 0, portion(total, headroom)
    foreign_mib = max(seen + beyond, (device.memory_used_mib or 0) - within)
    leased = sum(lease.share_mib for lease in leases)
    if any(lease.whole for lease in leases):  # what others have left since is not for new ones
        leased = max(leased, total - reserved - kept - foreign_mib)
    return DeviceCapacity(
        device=device,
        total_mib=total,
        reserved_mib=reserved,
        foreign_mib=foreign_mib,
        beyond_mib=beyond,
        leased_mib=leased,
        headroom_mib=kept,
        foreign=foreign,
        alone=alone,
        taken=alone and (bool(leases) or any("C" in process.kind for process in foreign)),
    )


def _used_on_leases(device: Device, leases: Sequence[Lease], own: Mapping[int, Holder]) -> tuple[int, int]:
    """Return what the holders of leases use within their shares, and what they use beyond, which counts as foreign.

    A process whose memory the driver does not report (None, as in a container) uses its whole share; one of which only
    the job is known uses what the job's replicas leave of theirs.
    """
    known = [process for process in device.processes if process.pid in own]
    if not known:
        return 0, 0
    left: dict[Holder, int] = {}
    for lease in leases:
        left[lease.holder] = left.get(lease.holder, 0) + lease.share_mib
    shares = sum(left.values())
    for process in sorted(known, key=lambda each: (not own[each.pid][-1], each.memory_mib is None)):
        holder = own[process.pid]
        whose = [holder] if holder[-1] else [each for each in left if each[:-1] == holder[:-1]]
        rest = sum(max(0, left[each]) for each in whose) if process.memory_mib is None else process.memory_mib
        for each in whose:
            within = min(rest, max(0, left[each]))
            left[each] -= within
            rest -= within
        left[holder] -= rest
    return shares - sum(max(0, each) for each in left.values()), sum(max(0, -each) for each in left.values())
