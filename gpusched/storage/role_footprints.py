"""What a job that has ended has shown of its roles' needs: a footprint of each, and what a context takes. No I/O."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.execution.footprint_key import footprint_key, footprint_keys
from gpusched.model.footprint import Context, Footprint
from gpusched.model.status import JobState, JobStatus, ReplicaStatus
from gpusched.model.usage import Usage
from gpusched.planner.command import ROLE
from gpusched.storage.footprint_store import RoleFootprint
from gpusched.storage.job import Job

__all__ = ["footprints_of"]

_MOST_MIB: Final = 1 << 31
"""A context above this is what a job has written into its status, and no measure; the database could not hold it."""


def footprints_of(job: Job, end: JobStatus) -> Iterator[RoleFootprint]:
    """Yield what is to be kept of each role of a job that ended so, on each model of device that it was on.

    Of a simulated job and of one that a cluster ran nothing is: their devices are not this host's.
    """
    if end.simulated or end.engine is not None:
        return
    groups: dict[tuple[str, str], list[tuple[ReplicaStatus, Usage]]] = {}
    for one in end.replicas:
        for usage in one.usage:
            if usage.device is not None:
                groups.setdefault((one.role, usage.device), []).append((one, usage))
    keys = None if job.submission is None else footprint_keys(job.submission)
    for (role, device), runs in groups.items():
        key = footprint_key(end.workload, role, job.memory_options) if keys is None else keys.get(role)
        moment = end.ended or job.created
        whole = role in _with_whole_devices(job)
        footprint = _footprint(job.id, moment, runs, succeeded=end.state is JobState.SUCCEEDED, whole=whole)
        context = _context(moment, [usage for _, usage in runs])
        if key is None:
            footprint = None
        if footprint is not None or context is not None:
            yield RoleFootprint(key or "", device, footprint, context)


def _footprint(
    job: str, ended: float, runs: Sequence[tuple[ReplicaStatus, Usage]], *, succeeded: bool, whole: bool
) -> Footprint | None:
    """Return what was needed; None where it is not known, or is no proof because the job did not succeed.

    `whole`: its replicas had whole devices. After a lack of memory there is no more to ask for, so nothing is kept.
    """
    usages = [usage for _, usage in runs]
    latest = max((one for one in usages if one.framework), key=lambda one: one.attempt, default=None)
    framework, version = (None, None) if latest is None else (latest.framework, latest.framework_version)
    ends = ((one.limit_mib, one.exit) for one, _ in runs)
    lacked = max((limit for limit, end in ends if end is not None and end.lacks_device_memory), default=None)
    if lacked and whole:
        return None
    if lacked:
        return Footprint(job=job, ended=ended, lacked_mib=lacked, framework=framework, version=version)
    peak = max((one.peak_mib for one in usages if one.peak_mib is not None), default=None)
    shown = max((one.device_mib for one in usages if one.peak_mib is None and one.device_mib), default=None)
    if not succeeded or (peak is None and shown is None):
        return None
    return Footprint(job=job, ended=ended, peak_mib=peak, device_mib=shown, framework=framework, version=version)


def _with_whole_devices(job: Job) -> Sequence[str]:
    """Return the names of the roles whose replicas had whole devices."""
    if job.submission is None:
        return job.whole_roles
    command = job.submission.command
    if command is not None:
        return (ROLE,) if command.memory_mib is None and command.fraction is None else ()
    roles = job.submission.request.roles if job.submission.request else ()
    return [role.name for role in roles if role.devices is not None]


def _context(ended: float, usages: Sequence[Usage]) -> Context | None:
    known = [one for one in usages if 0 < (one.context_mib or 0) < _MOST_MIB and one.framework and one.driver]
    if not known:
        return None
    one = max(known, key=lambda each: each.context_mib or 0)
    return Context(
        driver=one.driver or "",
        framework=one.framework or "",
        version=one.framework_version or "",
        mib=one.context_mib or 0,
        ended=ended,
    )
