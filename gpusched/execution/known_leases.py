"""Leases that jobs hold whose file is gone: a job can remove its own, and has its share of the device all the same.

What a job took when it started is known from its plan: to the daemon, and to others from spec.json.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.read_jobs import list_jobs, read_job
from gpusched.leases.directory import leases_of_replicas
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobState, JobStatus

__all__ = ["leases_of_spec", "of_job", "running_leases", "with_known"]


def leases_of_spec(directory: JobDirectory, since: float) -> tuple[Lease, ...]:
    """Return what the job in a directory took when it started, `since` in Unix seconds; none if that cannot be read."""
    try:
        spec = directory.read_spec()
    except HostFault:
        return ()
    return of_job(leases_of_replicas((one.replica for one in spec.replicas), spec.id), directory.path, since)


def of_job(leases: Iterable[Lease], run_dir: Path, since: float) -> tuple[Lease, ...]:
    """Return `leases` as those of the job in `run_dir`, which has had them `since` then, in Unix seconds."""
    return tuple(msgspec.structs.replace(lease, run_dir=str(run_dir), since=since) for lease in leases)


def with_known(leases: Sequence[Lease], known: Iterable[Lease], inventory: Inventory) -> tuple[Lease, ...]:
    """Return `leases` as the files have them, and of those `known` the ones on devices of `inventory` that no file has.

    `known` is what live jobs took when they started; what a replica held that has ended for good was given back. A
    saved status has the devices of the host that was saved: what is held there is not held here, nor the reverse.
    """
    here = {device.uuid for device in inventory.devices}
    on_file = {(lease.run_dir, lease.replica, lease.device_uuid) for lease in leases if lease.user is None}
    missing = [
        lease
        for lease in known
        if lease.device_uuid in here and (lease.run_dir, lease.replica, lease.device_uuid) not in on_file
    ]
    jobs = {run_dir: read_job(Path(run_dir)) for run_dir in {lease.run_dir for lease in missing}}
    return (*leases, *(lease for lease in missing if _is_held(jobs[lease.run_dir], lease.replica, inventory)))


def running_leases(state_dir: Path, leases: Sequence[Lease]) -> tuple[Lease, ...]:
    """Return what the jobs in a state directory took that run and of which `leases` lack something. Raises HostFault.

    A caller that asks the daemon instead need not read all directories.
    """
    on_file = {(lease.run_dir, lease.replica, lease.device_uuid) for lease in leases if lease.user is None}
    found: list[Lease] = []
    for job in list_jobs(state_dir, ended_since=time.time()):
        if job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING) and not _all_on_file(job, on_file):
            found += leases_of_spec(JobDirectory(Path(job.run_dir)), job.started or job.created)
    return tuple(found)


def _all_on_file(job: JobStatus, on_file: Collection[tuple[str, str, str]]) -> bool:
    return all(
        (job.run_dir, one.name, uuid) in on_file
        for one in job.replicas
        if one.state not in REPLICA_TERMINAL
        for uuid in (one.device_uuid, *(more.device_uuid for more in one.further))
        if uuid is not None
    )


def _is_held(job: JobStatus, replica: str, inventory: Inventory) -> bool:
    if job.simulated is not inventory.simulated or (job.state in JOB_TERMINAL and job.replicas):
        return False
    return not any(one.name == replica and one.state in REPLICA_TERMINAL for one in job.replicas)
