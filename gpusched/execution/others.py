"""Jobs of other users, as their leases show them: which devices of this host they hold, how much, and since when.

Their queues, directories and commands are their own. A job that holds no device of this host is not seen.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from gpusched.leases.directory import lease_directory
from gpusched.model.lease import Lease
from gpusched.model.plan import DeviceShare
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.settings import Settings

__all__ = ["jobs_of_others"]


def jobs_of_others(settings: Settings, user: str | None) -> tuple[JobStatus, ...]:
    """Return the jobs of another user, or of all others (None), that hold leases on this host, oldest first.

    Each as far as it is known: its `id` is alice/snake-4, its state `running`, though it may still start or already
    stop. Raises HostFault where the leases cannot be read.
    """
    found = lease_directory(settings, simulated=False).read()
    leases = [lease for lease in found if lease.user is not None and user in (None, lease.user)]
    if not leases:
        return ()
    from gpusched.probe.nvml import NvmlProbe

    indices = {device.uuid: device.index for device in NvmlProbe(settings.driver_patience_s).read().devices}
    leases.sort(key=_holder)
    jobs = (_job(list(group), indices) for _, group in groupby(leases, _job_key))
    return tuple(sorted(jobs, key=lambda job: (job.created, job.id)))


def _job_key(lease: Lease) -> tuple[str, str, str]:
    return lease.user or "", lease.run_dir, lease.job


def _holder(lease: Lease) -> tuple[str, str, str, str]:
    return (*_job_key(lease), lease.replica)


def _job(leases: Sequence[Lease], indices: dict[str, int]) -> JobStatus:
    first = leases[0]
    replicas = (_replica(list(group), indices) for _, group in groupby(leases, _holder))
    return JobStatus(
        id=first.job_label,
        workload=first.job.rpartition("-")[0],
        state=JobState.RUNNING,
        counts=(),
        replicas=tuple(replicas),
        run_dir=first.run_dir,
        created=first.since,
        started=first.since,
        user=first.user,
    )


def _replica(leases: Sequence[Lease], indices: dict[str, int]) -> ReplicaStatus:
    first = leases[0]
    return ReplicaStatus(
        name=first.replica,
        role=first.replica.rpartition(".")[0],
        state=ReplicaState.RUNNING,
        device_uuid=first.device_uuid,
        device_index=indices.get(first.device_uuid),
        share_mib=first.share_mib,
        since=first.since,
        further=tuple(_further(leases[1:], indices)),
    )


def _further(leases: Iterable[Lease], indices: dict[str, int]) -> Iterable[DeviceShare]:
    for lease in leases:
        index = indices.get(lease.device_uuid)
        if index is not None:
            yield DeviceShare(device_index=index, device_uuid=lease.device_uuid, share_mib=lease.share_mib)
