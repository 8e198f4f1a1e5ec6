"""What each role of a workload took of its device in one run, and what its file should ask for. No I/O, no clock."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from gpusched.model.device import Device
from gpusched.model.footprint import enlarged, named, recommended
from gpusched.model.status import JobStatus, ReplicaStatus
from gpusched.model.usage import MOST_ATTEMPTS, Usage
from gpusched.model.workload import Memory, Role, Workload

__all__ = ["RoleFit", "has_failed", "role_fits", "run_seconds", "to_measure"]

_FIRST_MIB: Final = 256
"""What a role asks for whose minimum is to be what is measured."""


class RoleFit(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica of a role took at most, in MiB; None: not known. `device`: the model, None: it had no device.

    `limit_mib`: what it was given. `peak_mib`: what its program had allocated by its `framework`; where none counts, it
    is what the driver showed (`device_mib`) less the context that was planned. `context_mib`: what was measured beside
    the framework's pool. `ask_mib`: what to ask for; None: nothing was seen of it, or it has `several` devices, or it
    needs more than a whole one. `lacked`: it ran out of memory at that limit and never had more, so that what to ask
    for is only where to go on.
    """

    role: str
    device: str | None = None
    limit_mib: int = 0
    peak_mib: int | None = None
    device_mib: int | None = None
    context_mib: int | None = None
    host_mib: int | None = None
    framework: str | None = None
    ask_mib: int | None = None
    lacked: bool = False
    several: bool = False


def to_measure(workload: Workload) -> Workload:
    """Return the workload as it is run to measure by: one replica of each role, that may have all of its device."""
    return replace(workload, roles=tuple(map(_to_measure, workload.roles)))


def _to_measure(role: Role) -> Role:
    memory = None if role.memory is None else replace(role.memory, max_mib=None, **_first(role.memory))
    return replace(role, count=1, memory=memory)


def _first(memory: Memory) -> dict[str, int | None]:
    """Return what takes the place of a minimum that earlier runs would give."""
    return {} if memory.first_mib is None else {"min_mib": memory.first_mib or _FIRST_MIB, "first_mib": None}


def has_failed(one: ReplicaStatus) -> bool:
    """Return whether a replica has ended for another reason than a lack of memory, and was started again."""
    lacks = sum(usage.lacked_mib is not None for usage in one.usage[:-1])
    return lacks < min(one.restarts, MOST_ATTEMPTS - 1)


def run_seconds(job: JobStatus) -> float:
    """Return for how long a job that has ended ran, in seconds."""
    return round((job.ended or 0.0) - (job.started or 0.0), 1)


def role_fits(job: JobStatus, devices: Sequence[Device]) -> tuple[RoleFit, ...]:
    """Return what each role of a job took whose replicas have begun, in the order of the job. `devices`: the host's."""
    by_uuid = {device.uuid: device for device in devices}
    roles: dict[str, list[ReplicaStatus]] = {}
    for one in job.replicas:
        if one.usage:
            roles.setdefault(one.role, []).append(one)
    return tuple(_fit(role, replicas, by_uuid) for role, replicas in roles.items())


def _fit(role: str, replicas: Sequence[ReplicaStatus], devices: Mapping[str, Device]) -> RoleFit:
    usages = [usage for one in replicas for usage in one.usage]
    host = max((usage.host_mib for usage in usages if usage.host_mib is not None), default=None)
    on_device = [one for one in replicas if one.device_uuid is not None]
    if not on_device:
        return RoleFit(role=role, host_mib=host)
    limit = min(one.limit_mib for one in on_device)
    peak = max((mib for one in on_device for usage in one.usage if (mib := _needed(one, usage))), default=None)
    lack = max((usage.lacked_mib for usage in usages if usage.lacked_mib), default=0)
    last = next((usage for usage in reversed(usages) if usage.framework), None)
    several = any(one.further for one in on_device)
    first = devices.get(on_device[0].device_uuid or "")
    ask = enlarged(lack) if lack >= limit else recommended(peak) if peak else None
    if several or (ask is not None and first is not None and ask > (first.memory_total_mib or ask)):
        ask = None
    return RoleFit(
        role=role,
        device=next((usage.device for usage in usages if usage.device), first.name if first else "unknown"),
        limit_mib=limit,
        peak_mib=peak,
        device_mib=max((usage.device_mib for usage in usages if usage.device_mib), default=None),
        context_mib=max((usage.context_mib for usage in usages if usage.context_mib), default=None),
        host_mib=host,
        framework=None if last is None else named(last.framework, last.framework_version),
        ask_mib=ask,
        lacked=lack >= limit,
        several=several,
    )


def _needed(one: ReplicaStatus, usage: Usage) -> int | None:
    """Return what an attempt had allocated, None where neither its framework nor the driver showed anything.

    One that ran out of memory had needed more than its limit.
    """
    if usage.lacked_mib:
        return usage.lacked_mib + 1
    if usage.peak_mib or not usage.device_mib:
        return usage.peak_mib or None
    return max(1, usage.device_mib - (one.share_mib - one.limit_mib))
