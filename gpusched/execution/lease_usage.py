"""Whose lease each process on a device uses: our own replicas by their pids, other users' jobs by their guards.

A process that uses a lease is not foreign: what it holds is counted once, as the lease. A job can remove the file of
its own lease, and has its share of the device all the same: what it took when it started is known from its plan, to the
daemon, and to others from spec.json.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.read_jobs import list_jobs, read_job
from gpusched.leases.directory import LeaseDirectory, leases_of_replicas
from gpusched.linux.processes import owner, parent
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobState, JobStatus

__all__ = ["current_leases", "leases_of_spec", "of_job", "running_leases", "with_known", "with_processes"]

_MOST_ANCESTORS: Final = 64


def current_leases(
    directory: LeaseDirectory, inventory: Inventory, known: Callable[[Sequence[Lease]], Iterable[Lease]] = lambda _: ()
) -> tuple[Lease, ...]:
    """Return what to plan beside on `inventory`: the leases that are held now, with the processes that use them.

    `known` gives, beside what the files hold, what our own running jobs took when they started.
    Raises HostFault.
    """
    leases = directory.read()
    if inventory.devices:
        leases = with_known(leases, known(leases), inventory)
    if inventory.simulated or not inventory.devices:
        return leases
    ours = sorted({lease.run_dir for lease in leases if lease.user is None})
    return with_processes(leases, inventory, [read_job(Path(run_dir)) for run_dir in ours])


def with_processes(leases: Sequence[Lease], inventory: Inventory, jobs: Iterable[JobStatus]) -> tuple[Lease, ...]:
    """Return `leases` with the pids of our own replicas, and one with a share of 0 for every other process of a job.

    `jobs` are ours, simulated ones left out. A process belongs to a replica that it descends from or shares the process
    group with. Else only the job's guard shows whose it is: for another user's job, for a replica that is not in its
    status yet, and for a process that got away from its replica. Below a guard, which replica it is can be known if
    there is only one on the device, and a process must be the same user's.
    """
    known = _with_pids(leases, jobs)
    roots: dict[int, list[Lease]] = {}
    guards: dict[int, list[Lease]] = {}
    for lease in known:
        if lease.pid is not None:
            roots.setdefault(lease.pid, []).append(lease)
        if lease.guard is not None:
            guards.setdefault(lease.guard, []).append(lease)
    found: list[Lease] = []
    for device in inventory.devices:
        for pid in sorted({process.pid for process in device.processes}):
            if (root := _root_among(pid, roots)) is not None:
                if pid != root or not any(lease.device_uuid == device.uuid for lease in roots[root]):
                    found.append(_further(roots[root], device.uuid, pid))
            elif (guard := _root_among(pid, guards)) is not None and owner(pid) == owner(guard):
                found.append(_of_somebody(guards[guard], device.uuid, pid))
    return (*known, *found)


def _with_pids(leases: Iterable[Lease], jobs: Iterable[JobStatus]) -> list[Lease]:
    pids = {
        (job.run_dir, one.name): one.pid
        for job in jobs
        if job.state not in JOB_TERMINAL and not job.simulated
        for one in job.replicas
        if one.pid is not None and one.state not in REPLICA_TERMINAL
    }
    return [
        msgspec.structs.replace(lease, pid=pids[lease.run_dir, lease.replica])
        if lease.user is None and (lease.run_dir, lease.replica) in pids
        else lease
        for lease in leases
    ]


def _further(leases: Sequence[Lease], device_uuid: str, pid: int) -> Lease:
    """Return a lease without a share that names a further process of a replica, on that device if it has a share there.

    A process on another device is the replica's too, but there it uses no lease.
    """
    there = next((lease for lease in leases if lease.device_uuid == device_uuid), leases[0])
    return msgspec.structs.replace(there, share_mib=0, pid=pid)


def _of_somebody(leases: Sequence[Lease], device_uuid: str, pid: int) -> Lease:
    there = [lease for lease in leases if lease.device_uuid == device_uuid] or leases
    one = len({lease.replica for lease in there}) == 1
    return msgspec.structs.replace(there[0], share_mib=0, pid=pid, replica=there[0].replica if one else "")


def _root_among(pid: int, roots: Collection[int]) -> int | None:
    """Return the pid of `roots` that `pid` is, descends from, or shares a process group with; None if there is none."""
    seen: int | None = pid
    for _ in range(_MOST_ANCESTORS if roots else 0):
        if seen in roots:
            return seen
        seen = parent(seen) if seen else None
    try:
        group = os.getpgid(pid)
    except OSError:
        return None
    return group if group in roots else None


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
