"""What `status` shows, as one value: a host, the jobs on it, and whose lease each process on a device uses.

It reads and joins; it must not know how any of it is drawn.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpusched.errors import UsageError
from gpusched.execution.queue_answer import QUEUE_PATIENCE_S, QueueAnswer, QueueReader, ask_queue, with_idle
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease, holders
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobStatus, ReplicaStatus
from gpusched.probe.reading import Reading
from gpusched.settings import Settings

if TYPE_CHECKING:
    from gpusched.probe.nvml import NvmlProbe

__all__ = ["Snapshot", "is_of", "reader_of"]

_RECENT_S: Final = 3600.0
_OF_THE_QUEUE: Final = (
    "name",
    "group",
    "priority",
    "command",
    "cwd",
    "user",
    "time_limit_s",
    "idle_end_s",
    "parameters",
)
"""What the daemon alone knows of a job that has begun."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One moment. `holders`: by pid of a process on a device, the lease it uses; `time` in Unix seconds.

    `jobs` are those that live, oldest first, then those that ended within the last hour, latest first; those that wait
    are known to the daemon alone, and `queue_problem` is why it did not list them. `load` is the host's load
    average over a minute, None where it is not this host's moment. `daemon_runs`: whether one does; without one no job
    that waits starts, and which of them are held is not known. `default_machine`: what the configuration has plans
    made for instead of this host.
    """

    inventory: Inventory
    jobs: tuple[JobStatus, ...]
    leases: tuple[Lease, ...]
    holders: dict[int, Lease]
    time: float
    load: float | None = None
    queue_problem: str | None = None
    daemon_runs: bool = True
    default_machine: str | None = None


def reader_of(machine: str | None, settings: Settings) -> Callable[[Snapshot | None], Snapshot]:
    """Return what reads `machine` (see read_inventory) and its jobs, again and again; None is this host.

    With a snapshot it keeps that one's devices, if they are this host's, and reads the jobs alone. For a saved status,
    the jobs are those saved with it. For a described machine they are the simulated ones on it. The function raises
    UsageError for an unknown machine or a wrong file, HostFault for what cannot be read.
    """
    if machine is None:
        from gpusched.probe.nvml import NvmlProbe

        probe, queue = NvmlProbe(settings.driver_patience_s), QueueReader(settings)
        return lambda kept: _of_this_host(probe, queue, settings, kept)
    return lambda _: _of_another(machine, settings)


def is_of(lease: Lease, job: JobStatus) -> bool:
    """Return whether it is this job's lease, and not that of another user's or directory's job of the same name."""
    return lease.user is None and lease.job == job.id and lease.run_dir in ("", job.run_dir)


def _of_this_host(
    probe: "NvmlProbe", ask: Callable[[], QueueAnswer], settings: Settings, kept: Snapshot | None
) -> Snapshot:
    from gpusched.execution.lease_usage import with_processes
    from gpusched.execution.plan_options import without_drained
    from gpusched.leases.directory import lease_directory

    asked = Reading(ask, "queue")  # NVML and the daemon take their time at once
    inventory = probe.read() if kept is None else kept.inventory
    while not asked.wait(QUEUE_PATIENCE_S):
        pass  # the question itself has an end
    now = time.time()
    held = lease_directory(settings, simulated=False).read()
    queue = asked.result()
    jobs, problem = _jobs(settings, now, queue)
    leases = with_processes(held, inventory, jobs)
    by_pid = holders(leases)
    return Snapshot(
        inventory=without_drained(with_idle(inventory, queue.idle), settings),
        jobs=tuple(_with_use(job, inventory, by_pid) for job in _recent(jobs, now)),
        leases=leases,
        holders=by_pid,
        time=now,
        load=os.getloadavg()[0],
        queue_problem=problem,
        daemon_runs=queue.listens,
        default_machine=settings.default_machine,
    )


def _of_another(machine: str, settings: Settings) -> Snapshot:
    from gpusched.probe.base import read_machine

    now = time.time()
    inventory, leases, saved = read_machine(machine)
    problem = None
    if inventory.source == "file":
        jobs = _saved_jobs(machine, saved)
    else:
        every, problem = _jobs(settings, now, ask_queue(settings))
        here = {device.uuid for device in inventory.devices}
        jobs = tuple(
            job
            for job in _recent(every, now)
            if any(one.device_uuid in here for one in job.replicas) or (not job.replicas and job.machine == machine)
        )
    return Snapshot(
        inventory=inventory, jobs=jobs, leases=leases, holders=holders(leases), time=now, queue_problem=problem
    )


def _jobs(settings: Settings, now: float, queue: QueueAnswer) -> tuple[list[JobStatus], str | None]:
    """Return all jobs, oldest first, as their directories have them; and those of the daemon's `queue`, which wait.

    The daemon was asked before: a job that starts meanwhile is found in its directory.
    """
    from gpusched.execution.read_jobs import list_jobs

    jobs = {job.id: job for job in list_jobs(settings.state_dir, now - _RECENT_S)}
    for job in queue.jobs:
        found = jobs.get(job.id)
        unread = found is not None and found.state in JOB_TERMINAL and not found.replicas
        if found is None or unread or (found.state in JOB_TERMINAL and found.attempt < job.attempt):
            jobs[job.id] = job
        elif found.state not in JOB_TERMINAL:
            jobs[job.id] = msgspec.structs.replace(found, **{name: getattr(job, name) for name in _OF_THE_QUEUE})
    for job_id, since in queue.idle.jobs.items():
        if job_id in jobs and jobs[job_id].state not in JOB_TERMINAL:
            jobs[job_id] = msgspec.structs.replace(jobs[job_id], idle_since=since)
    return sorted(jobs.values(), key=lambda job: (job.created, job.id)), queue.problem


def _saved_jobs(machine: str, saved: tuple[object, ...]) -> tuple[JobStatus, ...]:
    try:
        return msgspec.convert(saved, type=tuple[JobStatus, ...])
    except msgspec.ValidationError as error:
        raise UsageError(f"{machine}: its jobs are not understood: {error}", "save the status again") from None


def _recent(jobs: Sequence[JobStatus], now: float) -> list[JobStatus]:
    live = [job for job in jobs if job.state not in JOB_TERMINAL]
    ended = [job for job in jobs if job.state in JOB_TERMINAL and now - (job.ended or job.created) < _RECENT_S]
    return live + sorted(ended, key=lambda job: job.ended or job.created, reverse=True)


def _with_use(job: JobStatus, inventory: Inventory, by_pid: dict[int, Lease]) -> JobStatus:
    return msgspec.structs.replace(
        job,
        replicas=tuple(
            replica
            if replica.state in REPLICA_TERMINAL or replica.device_uuid is None
            else msgspec.structs.replace(replica, used_mib=_use(job, replica, inventory, by_pid))
            for replica in job.replicas
        ),
    )


def _use(job: JobStatus, replica: ReplicaStatus, inventory: Inventory, by_pid: dict[int, Lease]) -> int | None:
    """Return NVML's amount for the replica's processes on its device; None if it lists none of them, or no amount."""
    amounts = [
        process.memory_mib
        for device in inventory.devices
        if device.uuid == replica.device_uuid
        for process in device.processes
        if (lease := by_pid.get(process.pid)) is not None and is_of(lease, job) and lease.replica == replica.name
    ]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
