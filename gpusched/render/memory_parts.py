"""Into which parts the memory of a device falls: jobs, foreign use, reserve, free.

Numbers only: it must not know terminals or colours.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from gpusched.execution.snapshot import Snapshot, is_of
from gpusched.model.device import Device
from gpusched.model.lease import Lease
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobStatus

__all__ = ["MemoryParts", "Part"]


class Part(NamedTuple):
    """One part of a device's memory in MiB. Only jobs' parts have a `job`, its place among the snapshot's jobs.

    `used` and `leased` (not used yet) of one job are two parts; `replicas` counts those that hold the lease. `others`
    is what jobs elsewhere hold and do not use yet: other users', mostly. `foreign` is what processes of none of these
    jobs use, `other` what is used without NVML telling by whom.
    """

    kind: Literal["used", "leased", "others", "foreign", "other", "reserved", "free"]
    mib: int
    job: int | None = None
    replicas: int = 0


class _Held(NamedTuple):
    job: int
    replicas: int
    share_mib: int
    used_mib: int
    all_known: bool


class MemoryParts:
    """Finds the parts of the memory of a snapshot's devices. What is the same for all devices is found once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        live = {job.id: job for job in snapshot.jobs if job.state not in JOB_TERMINAL}
        self._placed = [(at, job) for at, job in enumerate(snapshot.jobs) if job.replicas and job.id in live]
        self._ours = {pid for pid, lease in snapshot.holders.items() if _is_ours(lease, live)}
        self._theirs = [lease for lease in snapshot.leases if not _is_ours(lease, live)]

    def of(self, device: Device) -> list[Part]:
        """Return the parts of the device's memory, in the order of drawing; their sum is its total unless more is used.

        What is used without NVML telling by whom counts for the jobs whose use is not known, up to their leases, and
        else as other. Empty if the device's total is not known.
        """
        total = device.memory_total_mib
        if total is None:
            return []
        held = [each for at, job in self._placed if (each := _held(at, job, device, self._snapshot)).replicas]
        foreign = sum(each.memory_mib or 0 for each in device.processes if each.pid not in self._ours)
        rest = max(0, (device.memory_used_mib or 0) - foreign - sum(each.used_mib for each in held))
        parts: list[Part] = []
        for each in held:
            unknown = 0 if each.all_known else min(rest, max(0, each.share_mib - each.used_mib))
            rest -= unknown
            used = each.used_mib + unknown
            parts.append(Part("used", used, each.job, each.replicas))
            parts.append(Part("leased", max(0, each.share_mib - used), each.job, each.replicas))
        parts.append(Part("others", self._left_to_others(device)))
        parts.append(Part("foreign", foreign))
        parts.append(Part("other", rest))
        parts.append(Part("reserved", device.memory_reserved_mib or 0))
        parts.append(Part("free", max(0, total - sum(part.mib for part in parts))))
        return parts

    def _left_to_others(self, device: Device) -> int:
        """Return what is leased to jobs that are not in the snapshot, beyond what their processes use."""
        theirs = [lease for lease in self._theirs if lease.device_uuid == device.uuid]
        used = _used(device, {lease.pid for lease in self._theirs if lease.pid is not None})
        return max(0, sum(lease.share_mib for lease in theirs) - used)


def _held(number: int, job: JobStatus, device: Device, snapshot: Snapshot) -> _Held:
    first = [one for one in job.replicas if one.device_uuid == device.uuid and one.state not in REPLICA_TERMINAL]
    further = [
        share.share_mib
        for one in job.replicas
        for share in one.further
        if share.device_uuid == device.uuid and one.state not in REPLICA_TERMINAL
    ]
    pids = {pid for pid, lease in snapshot.holders.items() if is_of(lease, job)} if further else set[int]()
    return _Held(
        job=number,
        replicas=len(first) + len(further),
        share_mib=sum(one.share_mib for one in first) + sum(further),
        used_mib=_used(device, pids) if further else sum(one.used_mib or 0 for one in first),
        all_known=all(one.used_mib is not None for one in first),
    )


def _is_ours(lease: Lease, live: Mapping[str, JobStatus]) -> bool:
    job = live.get(lease.job)
    return job is not None and is_of(lease, job)


def _used(device: Device, pids: Collection[int]) -> int:
    return sum(each.memory_mib or 0 for each in device.processes if each.pid in pids)
