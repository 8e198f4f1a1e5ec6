"""`gpusched export`: a plan as manifests for something else that starts containers. Nothing is started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from gpusched.cli.cluster import ClusterWish, CpusPerNode, DeviceMemory, GpusPerNode, Nodes, Site
from gpusched.cli.planning import ActorMemory, ExcludeGpus, Gpus, LearnerMemory, Machine, Policy, Procs
from gpusched.cli.workload_arguments import configured
from gpusched.errors import HostFault, UsageError
from gpusched.execution.plan_options import PlanOptions, visible_here, xla_variable
from gpusched.execution.workloads import complete_workload, load_workload
from gpusched.settings import load_settings, machine_typed

if TYPE_CHECKING:
    from gpusched.export import Exported, Manifests, ShareResource
    from gpusched.model.workload import Workload

__all__ = ["export"]

Kind = Literal["kubernetes", "slurm", "compose"]
_FILES: Final[dict[Kind, str]] = {"kubernetes": "{name}", "slurm": "{name}", "compose": "compose"}
"""What a file is called, without its suffix, where only a directory is named."""


def export(
    context: typer.Context,
    kind: Annotated[
        Kind,
        typer.Argument(
            help="kubernetes: Jobs, a Service and a claim. slurm: a batch script. compose: a Compose file for one host."
        ),
    ],
    workload: Annotated[
        str,
        typer.Argument(help="A workload's name, or the path of its workload.toml.", autocompletion=complete_workload),
    ],
    image: Annotated[
        str | None,
        typer.Option(
            help="The image in which the workload is installed. [default: a placeholder to be replaced]",
            metavar="IMAGE",
        ),
    ] = None,
    procs: Procs = None,
    machine: Machine = None,
    gpus: Gpus = None,
    exclude_gpus: ExcludeGpus = None,
    learner_memory: LearnerMemory = None,
    actor_memory: ActorMemory = None,
    policy: Policy = "balanced",
    name: Annotated[
        str | None, typer.Option(help="What the job is called there. [default: the workload's name]", metavar="NAME")
    ] = None,
    share_resource: Annotated[
        Literal["none", "nvidia", "hami"] | None,
        typer.Option(
            help="Of kubernetes: by what the site gives out GPUs. nvidia: nvidia.com/gpu, whole or shared in time. "
            "hami: also nvidia.com/gpumem. none: by nothing; the plan's devices are named. [default: nvidia]"
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            help="Of kubernetes: the directory of the key files for the Secret; those that are missing are made.",
            metavar="DIR",
        ),
    ] = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    cpus_per_node: CpusPerNode = None,
    device_memory: DeviceMemory = None,
    site: Site = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write there instead of to standard output.", metavar="FILE|DIR"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of YAML.")] = False,
) -> None:
    """Write the plan of a workload as manifests for Kubernetes or Compose, or as a batch script. Nothing is started.

    Options that export does not know are the workload's own: gpusched export compose snake -- --help

    Example: gpusched export kubernetes snake --procs 8 --machine 4x16GiB --image lab/snake:1 --keys snake-keys
    """
    from gpusched.export import NO_IMAGE, Exported, manifest_name, text

    if kind != "kubernetes" and (share_resource or keys):
        raise UsageError(f"{'--keys' if keys else '--share-resource'} belongs to kubernetes", "leave it out")
    cluster = ClusterWish("slurm", nodes, gpus_per_node, cpus_per_node, device_memory, tuple(site or ()))
    if kind != "slurm" and cluster.given():
        raise UsageError(f"{' and '.join(cluster.given())} belongs to slurm", "leave it out")
    if kind == "slurm" and image:
        raise UsageError("--image: on slurm the programs run in gpusched's own environment", "leave it out")
    named = load_workload(workload)
    loaded, options = configured(named, context.args, f"gpusched export {kind} {named.name}")
    machine = machine_typed(machine)
    visible = visible_here(os.environ, machine)
    wish = PlanOptions(procs, machine, gpus, exclude_gpus, learner_memory, actor_memory, policy, visible=visible)
    if kind == "slurm":
        script = _batch_script(loaded, options, wish, cluster, name or loaded.name, as_json=as_json)
        _put(script, _path(kind, name or loaded.name, output, "json" if as_json else "sh"))
        return
    what = Exported(
        plan=wish.plan(loaded, load_settings(os.environ)),
        workload=loaded,
        name=manifest_name(loaded, name),
        image=image or NO_IMAGE,
        options=options,
        xla_variable=xla_variable(),
    )
    written = _manifests(kind, what, share_resource or "nvidia", keys)
    if as_json or image is None:
        _print_notes(written.notes if as_json else [note for note in written.notes if NO_IMAGE in note])
    content = text.as_json(written) if as_json else text.as_yaml(written)
    _put(content, _path(kind, what.name, output, "json" if as_json else "yaml"))


def _manifests(kind: Kind, what: "Exported", share: "ShareResource", keys: str | None) -> "Manifests":
    from gpusched.export import compose, kubernetes

    if kind == "compose":
        return compose(what)
    written = kubernetes(what, share, keys)
    if keys is not None:
        from gpusched.execution.network import make_keys

        make_keys(Path(keys), what.name)
    return written


def _print_notes(notes: Sequence[str]) -> None:
    """Print on stderr what no comment in the manifests can hold, or what must not be missed."""
    for note in notes:
        print(f"gpusched: {note}", file=sys.stderr)


def _batch_script(
    workload: "Workload", options: bytes, wish: PlanOptions, cluster: ClusterWish, name: str, *, as_json: bool
) -> str:
    from gpusched.cli.cluster import fitted_if_there, group_of, submission_text

    group = fitted_if_there(group_of("slurm", workload, options, wish, cluster, load_settings(os.environ)), cluster)
    return submission_text(group, name, as_json=as_json)


def _path(kind: Kind, name: str, output: str | None, suffix: str) -> Path | None:
    if output is None:
        return None
    path = Path(output)
    if not (path.is_dir() or output.endswith("/")):
        return path
    return path / f"{_FILES[kind].format(name=name)}.{suffix}"


def _put(content: str, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise HostFault(f"{path} cannot be written: {error.strerror}", "name a file that can: -o FILE") from None
    print(path, file=sys.stderr)
