"""A workload on a cluster is a job of this host whose one process has the cluster run it: what that job is.

Nothing here knows an engine by its name: what differs is what each has registered (engines/registry.py).
"""

import os
import sys
from contextlib import suppress
from typing import Final

import msgspec

from gpusched.engines.cluster.layout import lay_out
from gpusched.engines.cluster.options import ClusterOptions
from gpusched.engines.registry import cluster_engine, engine_options
from gpusched.errors import HostFault, UsageError
from gpusched.execution.hosts import learner_role
from gpusched.execution.plan_options import PlanOptions
from gpusched.execution.submission import workload_submission
from gpusched.execution.workload_options import Configured
from gpusched.frameworks.registry import frameworks
from gpusched.interpreter import module_options
from gpusched.model.cluster_job import ClusterJob, Own
from gpusched.model.job import ClusterJobRef, Submission
from gpusched.model.workload import Restart, Role, Workload
from gpusched.planner import Rules
from gpusched.planner.policies import policy_and_growth
from gpusched.settings import Settings
from gpusched.times import parse_seconds
from gpusched.units import parse_mib

__all__ = ["cluster_job", "cluster_warnings", "driver_job", "preview"]

_DAY_S: Final = 86_400
_RESTARTS: Final = 1_000_000
_CLEARING_UP_S: Final = 60.0


def cluster_job(
    engine: str, configured: Configured, wish: PlanOptions, cluster: ClusterOptions, settings: Settings
) -> ClusterJob:
    """Return the workload spread over the cluster's nodes. Raises UsageError, NeverFits, HostFault."""
    workload = configured.workload
    _require_possible(engine, wish, cluster)
    own = cluster_engine(engine).checked(dict(cluster.own), os.environ)
    gpus = _gpus(engine, own, cluster, workload)
    memory = parse_mib(cluster.device_memory or "16GiB", "--device-memory")
    policy, grow = policy_and_growth(wish.policy, wish.grow)
    rules = Rules(policy=policy, grow=grow, context_mib=settings.context_mib, headroom=settings.headroom)
    nodes = lay_out(wish.request(workload), learner_role(workload), cluster.nodes or 1, gpus, memory, rules)
    return ClusterJob(
        engine=engine,
        workload=msgspec.structs.replace(workload, path=None),
        options=configured.options.decode(),
        nodes=nodes,
        gpus=gpus,
        cpus=cluster.cpus_per_node or max(sum(node.counts.values()) for node in nodes),
        learner_memory=wish.learner_memory,
        actor_memory=wish.actor_memory,
        policy=wish.policy,
        grow=wish.grow,
        own=own,
        patience_s=_patience_s(cluster.patience or "45s"),
        python=sys.executable,
        cwd=os.getcwd(),  # noqa: PTH109 (a text is wanted)
    )


def preflight(job: ClusterJob, cluster: ClusterOptions, *, now: bool) -> ClusterJob:
    """Return the job as the cluster can have it, to start `now` or later. Raises UsageError, HostFault."""
    engine = cluster_engine(job.engine)
    possible = engine.preflight(job, cluster.patience)
    if now:
        engine.require_now(possible)
    return possible


def preview(job: ClusterJob, cluster: ClusterOptions) -> ClusterJob:
    """Return the job as the cluster can have it; as it is where this host reaches none. Raises UsageError."""
    with suppress(HostFault):
        return preflight(job, cluster, now=False)
    return job


def cluster_warnings(job: ClusterJob) -> tuple[str, ...]:
    """Return what a person should know before the job is submitted.

    GPUs would be taken for nothing: a login node has no driver, by which `make setup` chooses.
    """
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for framework in frameworks() if job.gpus else ():
        with suppress(PackageNotFoundError):
            if framework.only_cpus and version(framework.only_cpus):
                problem = "here, and so on the nodes, is its build for CPUs: with it these processes use no GPU"
                found.append(f"{framework.title} {problem}\n  hint: make setup FLAVOUR=cuda")
    return tuple(found)


def driver_job(job: ClusterJob) -> Submission:
    """Return what this host runs for the job: the process that has the cluster do it, for as long as that takes.

    Killed, it is started again, and finds what the one before it began.
    """
    role = Role(
        name=job.engine,
        command=("{python}", *module_options(job.cwd), cluster_engine(job.engine).module),
        restart=Restart(policy="on-signal", max=_RESTARTS),
        low_cpu=True,
    )
    grace = job.workload.stop_grace_s + _CLEARING_UP_S
    workload = Workload(name=job.workload.name, roles=(role,), leader=role.name, stop_grace_s=grace, requeue=True)
    network = ClusterJobRef(engine=job.engine)
    return workload_submission(workload, msgspec.json.encode(job), PlanOptions(), network)


def _require_possible(engine: str, wish: PlanOptions, cluster: ClusterOptions) -> None:
    """Raise UsageError for what no cluster, or this one, can do, before anything is submitted."""
    for option, value in (("--machine", wish.machine), ("--gpus", wish.gpus), ("--exclude-gpus", wish.exclude_gpus)):
        if value is not None:
            raise UsageError(f"{option} chooses devices of this host, and {engine} its own", f"leave {option} out")
    if wish.ignore_foreign is not None:
        raise UsageError(f"--ignore-foreign is of processes of this host, and {engine} has its own", "leave it out")
    if wish.procs == "max":
        raise UsageError(f"--procs max: how many fit, only the nodes of {engine} know", "give a number")
    known = engine_options()
    for name, values in cluster.own.items():
        if name not in known:
            raise UsageError(f"no engine has an option {name!r}", f"there are: {', '.join(known)}")
        if name not in cluster_engine(engine).options:
            raise UsageError(f"--{name} {known[name].elsewhere.format(engine=engine)}", "leave it out")
        if len(values) > 1 and not known[name].repeats:
            raise UsageError(f"--{name} is given {len(values)} times", "give it once")


def _gpus(engine: str, own: Own, cluster: ClusterOptions, workload: Workload) -> int:
    """Return how many GPUs a node gives; where nothing was typed, as many as the engine finds, if one is needed."""
    if all(role.memory is None and role.devices is None for role in workload.roles):
        return 0
    return cluster_engine(engine).gpus(own) if cluster.gpus_per_node is None else cluster.gpus_per_node


def _patience_s(text: str) -> int:
    return max(1, min(round(parse_seconds(text, "--patience")), _DAY_S))
