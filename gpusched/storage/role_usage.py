"""What the roles of a job used, summed up from its replicas. No I/O."""

from collections.abc import Callable, Iterable, Sequence
from shlex import join
from typing import Final

from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaStatus
from gpusched.model.usage import RoleUsage, Usage

__all__ = ["roles_used"]

_LONGEST: Final = 200
"""Letters of a command that are kept."""


def roles_used(job: JobStatus) -> list[RoleUsage]:
    """Return the usage of each role of a job whose replicas have begun."""
    roles: dict[str, list[ReplicaStatus]] = {}
    for one in job.replicas:
        if one.usage:
            roles.setdefault(one.role, []).append(one)
    what = join(job.command)[:_LONGEST] if job.command else job.workload
    return [_role(job, what, role, replicas) for role, replicas in roles.items()]


def _role(job: JobStatus, what: str, role: str, replicas: Sequence[ReplicaStatus]) -> RoleUsage:
    usage = [each for one in replicas for each in one.usage]
    known = [
        (share, each)
        for one in replicas
        for each in one.usage
        if each.device_mib is not None and (share := one.all_shares_mib if each.share_mib is None else each.share_mib)
    ]
    return RoleUsage(
        job=job.id,
        name=job.name,
        role=role,
        what=what,
        state=str(job.state),
        started=job.started or job.created,
        ended=job.ended if job.state in JOB_TERMINAL else None,
        replicas=len(replicas),
        restarts=sum(one.restarts for one in replicas),
        device=next((each.device for each in usage if each.device), None),
        limit_mib=min(one.limit_mib for one in replicas),
        share_mib=min(one.all_shares_mib for one in replicas),
        device_mib=_most(usage, lambda each: each.device_mib),
        peak_mib=_most(usage, lambda each: each.peak_mib),
        pool_mib=_most(usage, lambda each: each.pool_mib),
        framework=next((each.framework for each in usage if each.framework), None),
        framework_version=next((each.framework_version for each in usage if each.framework_version), None),
        host_mib=_most(usage, lambda each: each.host_mib),
        cpu_s=_sum(each.cpu_s for each in usage),
        sm_percent=_mean(usage),
        energy_j=_sum(each.energy_j for each in usage),
        energy_attributed=any(each.energy_attributed for each in usage),
        seconds=max(sum(each.seconds for each in one.usage) for one in replicas),
        run_s=round(sum(each.seconds for each in usage), 3),
        given_mib_s=round(sum(share * each.seconds for share, each in known), 3),
        used_mib_s=round(sum(min(share, each.device_mib or 0) * each.seconds for share, each in known), 3)
        if known
        else None,
    )


def _most(usage: Iterable[Usage], figure: Callable[[Usage], int | None]) -> int | None:
    return max((mib for each in usage if (mib := figure(each)) is not None), default=None)


def _mean(usage: Iterable[Usage]) -> float | None:
    """Return how busy devices were, by the time of each attempt."""
    known = [(each.sm_percent, each.seconds) for each in usage if each.sm_percent is not None]
    seconds = sum(each for _, each in known)
    return round(sum(percent * each for percent, each in known) / seconds, 1) if seconds else None


def _sum(figures: Iterable[float | None]) -> float | None:
    known = [one for one in figures if one is not None]
    return round(sum(known), 3) if known else None
