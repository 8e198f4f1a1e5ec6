"""What each role of a workload took of its device in one run, and what its file should ask for. No I/O, no clock."""

from collections.abc import Sequence

import msgspec

from gpusched.model.footprint import enlarged, named, recommended
from gpusched.model.status import JobStatus, ReplicaStatus
from gpusched.model.usage import Usage

__all__ = ["RoleFit", "role_fits"]


class RoleFit(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica of a role took at most, in MiB; None: not known. `device`: the model, None: it had no device.

    `limit_mib`: what it was given. `peak_mib`: what its program had allocated by its `framework`; where none counts, it
    is what the driver showed (`device_mib`) less the context that was planned. `context_mib`: what was measured beside
    the framework's pool. `ask_mib`: what to ask for; None: nothing was seen of it. `lacked`: it ran out of memory
    at that limit and never had more, so that this is only where to go on.
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


def role_fits(job: JobStatus) -> tuple[RoleFit, ...]:
    """Return what each role of a job took whose replicas have begun, in the order of the job."""
    roles: dict[str, list[ReplicaStatus]] = {}
    for one in job.replicas:
        if one.usage:
            roles.setdefault(one.role, []).append(one)
    return tuple(_fit(role, replicas) for role, replicas in roles.items())


def _fit(role: str, replicas: Sequence[ReplicaStatus]) -> RoleFit:
    usages = [usage for one in replicas for usage in one.usage]
    host = max((usage.host_mib for usage in usages if usage.host_mib is not None), default=None)
    on_device = [one for one in replicas if one.device_uuid is not None]
    if not on_device:
        return RoleFit(role=role, host_mib=host)
    limit = min(one.limit_mib for one in on_device)
    peak = max((mib for one in on_device for usage in one.usage if (mib := _needed(one, usage))), default=None)
    lack = max((usage.lacked_mib for usage in usages if usage.lacked_mib), default=0)
    last = next((usage for usage in reversed(usages) if usage.framework), None)
    return RoleFit(
        role=role,
        device=next((usage.device for usage in usages if usage.device), "unknown"),
        limit_mib=limit,
        peak_mib=peak,
        device_mib=max((usage.device_mib for usage in usages if usage.device_mib), default=None),
        context_mib=max((usage.context_mib for usage in usages if usage.context_mib), default=None),
        host_mib=host,
        framework=None if last is None else named(last.framework, last.framework_version),
        ask_mib=enlarged(lack) if lack >= limit else recommended(peak) if peak else None,
        lacked=lack >= limit,
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
