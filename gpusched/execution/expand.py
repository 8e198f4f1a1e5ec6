"""A plan becomes a job's spec: every replica with its command, its environment, and where the others are found."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gpusched.environment import LONGEST_SOCKET_PATH, identity_environment
from gpusched.errors import UsageError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.footprint_key import memory_options
from gpusched.execution.hosts import addresses, learner_role
from gpusched.execution.learner_socket import socket_name
from gpusched.execution.spec import DeviceRoom, JobSpec
from gpusched.model.job import JobShard, Listening, Submission
from gpusched.model.plan import Plan, Replica
from gpusched.model.workload import Workload
from gpusched.planner import replica_specs
from gpusched.probe.host import usable_cpus
from gpusched.settings import Settings

__all__ = ["job_socket", "job_spec", "require_short_socket"]


def job_spec(
    directory: JobDirectory,
    submission: Submission,
    plan: Plan,
    settings: Settings,
    *,
    created: float,
    attempt: int = 0,
    attached: bool = False,
    part: JobShard | None = None,
) -> JobSpec:
    """Return what a supervisor is to run in `directory`: the replicas of `plan`, with all that was submitted.

    `part`: they are not all replicas of the job; the rest is as in JobSpec. Raises UsageError for a workload that is
    to listen and has no role that could.
    """
    workload, network = submission.workload, submission.network
    counts = {one.name: one.count for one in plan.request.roles}
    whole = part or JobShard(job=directory.path.name, first={}, counts=counts)
    identity = _identities(directory, submission, whole, settings)
    return JobSpec(
        id=whole.job,
        workload=workload.name,
        name=submission.name,
        group=submission.group,
        command=submission.typed,
        replicas=replica_specs(
            _as_here(plan),
            workload,
            python=submission.python,
            cwd=submission.cwd,
            xla_variable=submission.xla_variable,
            identity=identity,
        ),
        restart={role.name: role.restart for role in workload.roles},
        leader=workload.leader,
        stop_grace_s=workload.stop_grace_s,
        counts=plan.counts,
        simulated=plan.inventory.simulated,
        machine=plan.inventory.host if plan.inventory.simulated else "",
        launcher=submission.launcher or submission.owner,
        attached=attached,
        time_limit_s=submission.time_limit_s,
        attempt=whole.attempt or attempt,
        preload=() if attached else workload.preload,
        created=created,
        network=network,
        attributes=submission.attributes,
        log_cap_mib=settings.log_cap_mib,
        memory_options=memory_options(submission),
        rooms=_rooms(plan),
        most_mib={
            role.name: role.memory.max_mib
            for role in plan.request.roles
            if role.memory is not None and role.memory.max_mib is not None
        },
        xla_variable=submission.xla_variable,
    )


def _rooms(plan: Plan) -> dict[str, DeviceRoom]:
    return {
        one.uuid: DeviceRoom(total_mib=one.total_mib, most_mib=one.plannable_mib + one.leased_mib)
        for one in plan.devices
        if one.replicas
    }


def _as_here(plan: Plan) -> Plan:
    """Return the plan with the threads that this host has CPUs for, where it is the plan of a machine with more."""
    here, there = len(usable_cpus()), len(plan.inventory.cpus)
    if not plan.inventory.simulated or here >= there:
        return plan
    return replace(
        plan, replicas=tuple(replace(one, threads=max(1, one.threads * here // there)) for one in plan.replicas)
    )


def job_socket(settings: Settings, directory: Path) -> Path:
    """Return the path of a job's socket."""
    return settings.runtime_dir / socket_name(directory)


def require_short_socket(workload: Workload, settings: Settings) -> None:
    """Raise UsageError if the channel's socket cannot be made, before 33 processes log it."""
    longest = LONGEST_SOCKET_PATH
    if len(os.fsencode(job_socket(settings, settings.state_dir / f"{workload.name}-99999"))) > longest:
        raise UsageError(
            f"{settings.runtime_dir}: sockets in this directory would have paths of over {longest} bytes",
            "set GPUSCHED_RUNTIME_DIR to a directory with a short path, such as /tmp/g",
        )


def _identities(
    directory: JobDirectory, submission: Submission, whole: JobShard, settings: Settings
) -> Callable[[Replica], dict[str, str]]:
    """Return the part of a replica's environment that names it, and where the others are."""
    network, socket = submission.network, job_socket(settings, directory.path)
    learner = learner_role(submission.workload) if isinstance(network, Listening) else ""

    def identity(replica: Replica) -> dict[str, str]:
        return settings.environment() | identity_environment(
            replica,
            addresses(network, directory.path, socket, replica, learner),
            job=whole.job,
            role_count=whole.counts[replica.role],
            run_dir=str(directory.path),
            settings=submission.options,
            index=submission.index,
        )

    return identity
