"""`launch --engine slurm|ray`: a workload on a cluster is a job of this host whose one process sees to it there."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import msgspec

from gpusched.engines.base import LOCAL
from gpusched.errors import HostFault, UsageError
from gpusched.execution.plan_options import PlanOptions
from gpusched.interpreter import module_options
from gpusched.model.group import ClusterJob, NodeShare
from gpusched.model.workload import Restart, Role, Workload
from gpusched.settings import ENGINES, Settings

__all__ = [
    "ClusterWish",
    "cluster_wish",
    "engine_of",
    "fitted",
    "fitted_if_there",
    "group_of",
    "layout_text",
    "seen_to_here",
    "show_group",
    "submission_text",
]

_OURS: Final = (
    *("--job-name", "-J", "--array", "-a", "--nodes", "-N", "--ntasks", "-n", "--output", "-o", "--open-mode"),
    *("--no-requeue", "--gres", "--cpus-per-task", "-c", "--input", "--wrap"),
)
"""What a batch script needs as it is: with others, two learners could share a directory."""
_DAY_S: Final = 86_400
_RESTARTS: Final = 1_000_000
_CLEARING_UP_S: Final = 60.0
_SHORTER: Final = 0.9
"""What part of Slurm's patience a node has by default, where that is shorter than the usual one."""


class ClusterWish(NamedTuple):
    """What a person typed about a cluster, as it was typed."""

    engine: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    device_memory: str | None = None
    site: tuple[str, ...] = ()
    address: str | None = None
    patience: str | None = None

    def given(self) -> list[str]:
        """Return the options that were used, but for --engine."""
        return [
            f"--{field.replace('_', '-')}"
            for field, value in self._asdict().items()
            if field != "engine" and value != self._field_defaults[field]
        ]


def cluster_wish(given: Mapping[str, Any]) -> ClusterWish:
    """Return what is given of CLUSTER."""
    chosen = {name: given[name] for name in ClusterWish._fields if given.get(name) is not None}
    return ClusterWish(**chosen | {"site": tuple(chosen.get("site", ()))})


def engine_of(wish: ClusterWish, workload: Workload, settings: Settings) -> str:
    """Return the engine: as typed, else that of the workload's file, else of the configuration. Raises UsageError."""
    name = wish.engine or workload.engine or settings.engine
    if name not in ENGINES:
        raise UsageError(f"--engine: there is no engine {name!r}", f"there is: {', '.join(ENGINES)}")
    if name == LOCAL and wish.given():
        raise UsageError(
            f"{' and '.join(wish.given())} belongs to a cluster", "add --engine slurm or ray, or leave it out"
        )
    return name


def group_of(
    engine: str, workload: Workload, options: bytes, wish: PlanOptions, cluster: ClusterWish, settings: Settings
) -> ClusterJob:
    """Return the workload spread over the cluster's nodes. Raises UsageError, NeverFits, HostFault."""
    from gpusched.engines.cluster.layout import lay_out
    from gpusched.execution.hosts import learner_role
    from gpusched.planner import Rules
    from gpusched.units import parse_mib

    _require_possible(engine, wish, cluster)
    gpus = (
        _gpus(engine, cluster)
        if any(role.memory is not None or role.devices is not None for role in workload.roles)
        else 0
    )
    if gpus and engine == "slurm":
        _warn_of_a_build_for_cpus()
    memory = parse_mib(cluster.device_memory or "16GiB", "--device-memory")
    rules = Rules(policy=wish.policy, context_mib=settings.context_mib, headroom=settings.headroom)
    nodes = lay_out(wish.request(workload), learner_role(workload), cluster.nodes or 1, gpus, memory, rules)
    return ClusterJob(
        engine=engine,
        workload=msgspec.structs.replace(workload, path=None),
        options=options.decode(),
        nodes=nodes,
        gpus=gpus,
        cpus=cluster.cpus_per_node or max(sum(node.counts.values()) for node in nodes),
        learner_memory=wish.learner_memory,
        actor_memory=wish.actor_memory,
        policy=wish.policy,
        site=cluster.site,
        address=_address_of_ray(cluster) if engine == "ray" else None,
        patience_s=_patience_s(cluster.patience or "45s"),
        python=sys.executable,
        cwd=os.getcwd(),  # noqa: PTH109 (a text is wanted)
    )


def seen_to_here(group: ClusterJob) -> Workload:
    """Return what this host runs for the group: the process that has the cluster do it, for as long as that takes.

    Killed, it is started again, and finds what the one before it began.
    """
    role = Role(
        name=group.engine,
        command=("{python}", *module_options(group.cwd), f"gpusched.engines.{group.engine}.engine"),
        restart=Restart(policy="on-signal", max=_RESTARTS),
        light=True,
    )
    grace = group.workload.stop_grace_s + _CLEARING_UP_S
    return Workload(name=group.workload.name, roles=(role,), leader=role.name, stop_grace_s=grace, requeue=True)


def fitted_if_there(group: ClusterJob, cluster: ClusterWish) -> ClusterJob:
    """Return the group as the site can have it, as it is where this host has none. Raises UsageError; see fitted."""
    with suppress(HostFault):
        return fitted(group, cluster, now=False)
    return group


def fitted(group: ClusterJob, cluster: ClusterWish, *, now: bool) -> ClusterJob:
    """Return the group as the site can have it: a node must give up its learner before Slurm gives up the node.

    Raises HostFault where this host cannot reach the cluster; a Ray that is to take the group only later, not `now`,
    may not be up yet. Raises UsageError for more patience than Slurm has.
    """
    if group.engine == "ray":
        if now:
            from gpusched.engines.ray.engine import require_answer

            require_answer(group.address or "auto")
        return group
    from gpusched.engines.slurm.commands import gives_up_after_s, require_commands

    require_commands()
    slurms_s = gives_up_after_s()
    if slurms_s > group.patience_s:
        return group
    if cluster.patience is not None:
        message = f"--patience {cluster.patience}: Slurm gives up a node after {slurms_s:.0f} s, its actors still there"
        raise UsageError(message, f"give less than --patience {slurms_s:.0f}s, or leave it out")
    return msgspec.structs.replace(group, patience_s=max(1, int(slurms_s * _SHORTER)))


def layout_text(group: ClusterJob) -> str:
    """Return what will run where: `9 processes on 2 nodes of slurm, 2 GPUs each: learner.0 actor.0-3, actor.4-7`."""
    total = sum(group.counts.values())
    gpus = f", {group.gpus} GPU{'s' if group.gpus > 1 else ''} each" if group.gpus else ""
    nodes = f"{len(group.nodes)} node{'s' if len(group.nodes) > 1 else ''}"
    return f"{total} processes on {nodes} of {group.engine}{gpus}: {', '.join(map(_share_text, group.nodes))}"


def submission_text(group: ClusterJob, name: str, *, as_json: bool) -> str:
    """Return a batch script of Slurm, which can be submitted by hand as `name`; or JSON about what would be."""
    from gpusched.engines.slurm.script import HeadOrder, batch_script

    script = ""
    if group.engine == "slurm":
        script = batch_script(HeadOrder(group=group), f"gpusched-{name}", "slurm-%j.log")
    if not as_json:
        return script
    report: dict[str, Any] = {"engine": group.engine, "nodes": msgspec.to_builtins(group.nodes), "script": script}
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


def show_group(group: ClusterJob, *, as_json: bool) -> None:
    """Print what would be submitted, as --dry-run does: on stdout a batch script alone, such that a file takes it."""
    text = f"# would submit {layout_text(group)}\n# nothing has been submitted"
    if group.engine == "ray":
        from gpusched.engines.ray.requirements import needs_text

        text = f"# to Ray at {group.address}: {needs_text(group)}\n{text}"
    if not as_json:
        print(text, file=sys.stderr if group.engine == "slurm" else sys.stdout, flush=True)
    sys.stdout.write(submission_text(group, group.workload.name, as_json=as_json))


def _share_text(share: NodeShare) -> str:
    return " ".join(_range_text(role, share.first[role], count) for role, count in share.counts.items() if count)


def _range_text(role: str, first: int, count: int) -> str:
    return f"{role}.{first}" if count == 1 else f"{role}.{first}-{first + count - 1}"


def _require_possible(engine: str, wish: PlanOptions, cluster: ClusterWish) -> None:
    """Raise UsageError for what no cluster, or this one, can do, before anything is submitted."""
    for option, value in (("--machine", wish.machine), ("--gpus", wish.gpus), ("--exclude-gpus", wish.exclude_gpus)):
        if value is not None:
            raise UsageError(f"{option} chooses devices of this host, and {engine} its own", f"leave {option} out")
    if wish.procs == "max":
        raise UsageError(f"--procs max: how many fit, only the nodes of {engine} know", "give a number")
    if engine != "slurm" and cluster.site:
        raise UsageError(f"--site is for sbatch, and {engine} has none", "leave it out")
    for word in cluster.site:
        if not word.startswith("-") or any(map(str.isspace, word.partition("=")[0])):
            raise UsageError(f"--site={word}: is no option of sbatch", "write it as one word: --site=--partition=gpu")
    ours = [word for word in cluster.site if word.startswith(_OURS)]
    if ours:
        raise UsageError(f"--site={ours[0]}: gpusched sets that itself", "leave it out, or give launch's own option")
    if engine != "ray" and cluster.address:
        raise UsageError(f"--address is where Ray is, and {engine} finds itself", "leave it out")


def _patience_s(text: str) -> int:
    from gpusched.times import parse_seconds

    return max(1, min(round(parse_seconds(text, "--patience")), _DAY_S))


def _gpus(engine: str, cluster: ClusterWish) -> int:
    """Return how many GPUs a node gives; where nothing was typed, what each has that has any. Raises HostFault."""
    if cluster.gpus_per_node is not None:
        return cluster.gpus_per_node
    if engine == "ray":
        message = "how many GPUs a node of Ray gives is not known before the job is there"
        raise UsageError(message, "give --gpus-per-node; with 0 no process gets one")
    from gpusched.engines.slurm.commands import gpus_of_site
    from gpusched.engines.slurm.script import partition_of, read_gpus

    return read_gpus(gpus_of_site(partition_of(cluster.site)))


def _warn_of_a_build_for_cpus() -> None:
    """Warn where GPUs would be taken for nothing: a login node has no driver, by which `make setup` chooses."""
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        version("tensorflow-cpu")
        message = "TensorFlow here, and so on the nodes, is its build for CPUs: with it these processes use no GPU"
        print(f"gpusched: {message}\n  hint: make setup FLAVOUR=cuda", file=sys.stderr)


def _address_of_ray(cluster: ClusterWish) -> str:
    """Return where Ray is, as typed or in the environment. Raises UsageError, and HostFault where it is not installed.

    Without an address it would start another cluster, and `ray://` is that of a client, which the driver is not.
    """
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    known = address == "auto" or (address and "://" not in address and address.rpartition(":")[2].isdecimal())
    if not address or not known:
        message = "which cluster of Ray?" if not address else f"{address} is no address of a cluster's head"
        raise UsageError(message, "give --address HOST:PORT, as `ray start` has it, or auto on a node of the cluster")
    if find_spec("ray") is None:
        raise HostFault("Ray is not installed here", "pip install 'ray>=2.52', in the version of the cluster")
    return address
