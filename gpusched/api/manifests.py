"""A plan as manifests for something else that starts containers, or as a batch script. Nothing is started."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from gpusched.api.arguments import ExportArguments, ManifestArguments, cluster_options, require_types, with_arguments
from gpusched.api.plan_arguments import plan_options, require_known
from gpusched.api.workloads import Options, WorkloadName, named_workload, own_options
from gpusched.engines.registry import cluster_engine, clusters
from gpusched.errors import UsageError
from gpusched.execution.plan_options import visible_here, xla_variable
from gpusched.execution.workload_options import Configured, configured_by
from gpusched.settings import load_settings, machine_typed

if TYPE_CHECKING:
    from gpusched.export import Exported, Manifests

__all__ = ["Export", "export", "kinds"]

_CONTAINERS: Final = ("kubernetes", "compose")


def kinds() -> tuple[str, ...]:
    """Return what `kind` may be: what starts containers, and the engines whose jobs a script can submit."""
    kubernetes, compose = _CONTAINERS
    return (kubernetes, *_scripts(), compose)


def _scripts() -> list[str]:
    return [name for name in clusters() if cluster_engine(name).script is not None]


class Export(NamedTuple):
    """What was written: its `text`; what its file is called; and what a person should know who starts it."""

    text: str
    file: str
    notes: tuple[str, ...]


@with_arguments(ExportArguments)
def export(
    kind: str, workload: WorkloadName, *, options: Options | None = None, **given: Unpack[ExportArguments]
) -> Export:
    """Return the plan of a workload as manifests for Kubernetes or Compose (YAML), or as a batch script of a cluster.

    Raises UsageError, too for an argument of another kind, NeverFits, NotNow and HostFault.
    """
    require_known(given, ExportArguments)
    _require_kind(kind, given)
    chosen = configured_by(named_workload(workload), own_options(options))
    return _manifests(kind, chosen, given) if kind in _CONTAINERS else _batch_script(kind, chosen, given)


def _require_kind(kind: str, given: ExportArguments) -> None:
    """Raise UsageError for a wrong type, and for an argument of another kind."""
    if kind not in kinds():
        raise UsageError(f"kind: there is no {kind!r}", f"there is: {', '.join(kinds())}")
    require_types(given, ManifestArguments)
    if given.get("engine") is not None:
        raise UsageError("engine: what is written is of one kind, and no engine runs it", "leave it out; see kinds()")
    if kind != "kubernetes" and (given.get("share_resource") or given.get("keys")):
        option = "--keys" if given.get("keys") else "--share-resource"
        raise UsageError(f"{option} belongs to kubernetes", "leave it out")
    cluster = cluster_options(given)
    if kind in _CONTAINERS and cluster.given():
        raise UsageError(f"{' and '.join(cluster.given())} belongs to {' or '.join(_scripts())}", "leave it out")
    if kind not in _CONTAINERS and given.get("image"):
        raise UsageError(f"--image: on {kind} the programs run in gpusched's own environment", "leave it out")


def _batch_script(engine: str, chosen: Configured, given: ExportArguments) -> Export:
    from gpusched.api.clusters import planned

    name = given.get("name") or chosen.workload.name
    plan = planned(engine, chosen, given, load_settings(os.environ), name=name)
    if given.get("json"):
        return Export(plan.json(), f"{name}.json", plan.warnings)
    return Export(plan.script, f"{name}.sh", plan.warnings)


def _manifests(kind: str, chosen: Configured, given: ExportArguments) -> Export:
    from gpusched.export import NO_IMAGE, Exported, manifest_name, text

    machine = machine_typed(given.get("machine"))
    wish = plan_options(given)._replace(machine=machine, visible=visible_here(os.environ, machine))
    what = Exported(
        plan=wish.plan(chosen.workload, load_settings(os.environ)),
        workload=chosen.workload,
        name=manifest_name(chosen.workload, given.get("name")),
        image=given.get("image") or NO_IMAGE,
        options=chosen.options,
        xla_variable=xla_variable(),
    )
    written = _written(kind, what, given)
    file = "compose" if kind == "compose" else what.name
    if given.get("json"):
        return Export(text.as_json(written), f"{file}.json", tuple(written.notes))
    notes = tuple(note for note in written.notes if NO_IMAGE in note)  # the others are comments
    return Export(text.as_yaml(written), f"{file}.yaml", notes)


def _written(kind: str, what: "Exported", given: ExportArguments) -> "Manifests":
    from gpusched.export import compose, kubernetes

    if kind == "compose":
        return compose(what)
    keys = given.get("keys")
    written = kubernetes(what, given.get("share_resource") or "nvidia", None if keys is None else os.fspath(keys))
    if keys is not None:
        from gpusched.execution.network import make_keys

        make_keys(Path(keys), what.name)
    return written
