"""`gpusched export`: a plan as manifests for something else that starts containers. Nothing is started."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusched.api.arguments import plan_options
from gpusched.cli.cluster import cluster_wish
from gpusched.cli.cluster_options import CLUSTER
from gpusched.cli.options import Context, Option, Options, argument, flag, with_options
from gpusched.cli.planning import PLAN, WORKLOAD
from gpusched.cli.workload_arguments import configured
from gpusched.errors import HostFault, UsageError
from gpusched.execution.plan_options import PlanOptions, visible_here, xla_variable
from gpusched.execution.workload_options import Configured
from gpusched.execution.workloads import load_workload
from gpusched.settings import load_settings, machine_typed

if TYPE_CHECKING:
    from gpusched.engines.cluster.options import ClusterOptions
    from gpusched.export import Exported, Manifests, ShareResource
    from gpusched.model.workload import Workload

__all__ = ["export"]

Kind = Literal["kubernetes", "slurm", "compose"]
_FILES: Final[dict[Kind, str]] = {"kubernetes": "{name}", "slurm": "{name}", "compose": "compose"}
"""What a file is called, without its suffix, where only a directory is named."""


_OPTIONS: Final[Options] = {
    "kind": argument(
        "kubernetes: Jobs, a Service and a claim. slurm: a batch script. compose: a Compose file for one host.",
        kind=Kind,
    ),
    "workload": WORKLOAD,
    "image": Option(
        "The image in which the workload is installed. [default: a placeholder to be replaced]", metavar="IMAGE"
    ),
    **PLAN,
    "name": Option("What the job is called there. [default: the workload's name]", metavar="NAME"),
    "share_resource": Option(
        "Of kubernetes: by what the site gives out GPUs. nvidia: nvidia.com/gpu, whole or shared in time. "
        "hami: also nvidia.com/gpumem. none: by nothing; the plan's devices are named. [default: nvidia]",
        kind=Literal["none", "nvidia", "hami"] | None,
    ),
    "keys": Option(
        "Of kubernetes: the directory of the key files for the Secret; those that are missing are made.",
        metavar="DIR",
    ),
    **{name: CLUSTER[name] for name in ("nodes", "gpus_per_node", "cpus_per_node", "device_memory", "site")},
    "output": Option("Write there instead of to standard output.", ("--output", "-o"), metavar="FILE|DIR"),
    "as_json": flag("Write JSON instead of YAML.", "--json"),
}


@with_options(_OPTIONS)
def export(
    context: Context,
    *,
    kind: Kind,
    workload: str,
    output: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Write the plan of a workload as manifests for Kubernetes or Compose, or as a batch script. Nothing is started.

    Options that export does not know are the workload's own: gpusched export compose snake -- --help

    Example: gpusched export kubernetes snake --procs 8 --machine 4x16GiB --image lab/snake:1 --keys snake-keys
    """
    from gpusched.export import NO_IMAGE, Exported, manifest_name, text

    cluster = _cluster_of(kind, given)
    named = load_workload(workload)
    loaded, options = configured(named, context.args, f"gpusched export {kind} {named.name}")
    wish, name = plan_options(given), given["name"]
    machine = machine_typed(wish.machine)
    wish = wish._replace(machine=machine, visible=visible_here(os.environ, machine))
    if kind == "slurm":
        script = _batch_script(loaded, options, wish, cluster, name or loaded.name, as_json=as_json)
        _put(script, _path(kind, name or loaded.name, output, "json" if as_json else "sh"))
        return
    image = given["image"]
    what = Exported(
        plan=wish.plan(loaded, load_settings(os.environ)),
        workload=loaded,
        name=manifest_name(loaded, name),
        image=image or NO_IMAGE,
        options=options,
        xla_variable=xla_variable(),
    )
    written = _manifests(kind, what, given["share_resource"] or "nvidia", given["keys"])
    if as_json or image is None:
        _print_notes(written.notes if as_json else [note for note in written.notes if NO_IMAGE in note])
    content = text.as_json(written) if as_json else text.as_yaml(written)
    _put(content, _path(kind, what.name, output, "json" if as_json else "yaml"))


def _cluster_of(kind: Kind, given: Mapping[str, Any]) -> "ClusterOptions":
    """Return what is given of a cluster. Raises UsageError for an option of another kind."""
    if kind != "kubernetes" and (given["share_resource"] or given["keys"]):
        option = "--keys" if given["keys"] else "--share-resource"
        raise UsageError(f"{option} belongs to kubernetes", "leave it out")
    cluster = cluster_wish({**given, "engine": "slurm"})
    if kind != "slurm" and cluster.given():
        raise UsageError(f"{' and '.join(cluster.given())} belongs to slurm", "leave it out")
    if kind == "slurm" and given["image"]:
        raise UsageError("--image: on slurm the programs run in gpusched's own environment", "leave it out")
    return cluster


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
    workload: "Workload", options: bytes, wish: PlanOptions, cluster: "ClusterOptions", name: str, *, as_json: bool
) -> str:
    from gpusched.api.clusters import ClusterPlan
    from gpusched.cli.cluster import print_warnings, submission_text
    from gpusched.engines.cluster.prepare import cluster_job, preview

    job = cluster_job("slurm", Configured(workload, options), wish, cluster, load_settings(os.environ))
    plan = ClusterPlan.of(preview(job, cluster), name)
    print_warnings(plan)
    return submission_text(plan, as_json=as_json)


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
