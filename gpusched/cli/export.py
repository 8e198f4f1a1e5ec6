"""`gpusched export`: a plan as manifests for something else that starts containers. Nothing is started."""

import sys
from pathlib import Path
from typing import Any, Final, Literal

from gpusched.api.clusters import engines
from gpusched.api.manifests import export as exported
from gpusched.api.manifests import kinds
from gpusched.cli.cluster import with_engine_options
from gpusched.cli.cluster_options import CLUSTER
from gpusched.cli.options import Context, Option, Options, argument, flag, with_options
from gpusched.cli.planning import PLAN, WORKLOAD
from gpusched.cli.workload_arguments import own_options
from gpusched.errors import HostFault

__all__ = ["export"]

_SCRIPTS: Final = [kind for kind in kinds() if kind in engines()]
_OF_SCRIPTS: Final = [name for engine in _SCRIPTS for name in engines()[engine]]

_OPTIONS: Final[Options] = {
    "kind": argument(
        f"kubernetes: Jobs, a Service and a claim. {', '.join(_SCRIPTS)}: a batch script. "
        "compose: a Compose file for one host.",
        kind=Literal.__getitem__(kinds()),
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
    **{name: CLUSTER[name] for name in ("nodes", "gpus_per_node", "cpus_per_node", "device_memory", *_OF_SCRIPTS)},
    "output": Option("Write there instead of to standard output.", ("--output", "-o"), metavar="FILE|DIR"),
    "as_json": flag("Write JSON instead of YAML.", "--json"),
}


@with_options(_OPTIONS)
def export(context: Context, *, kind: str, workload: str, output: str | None, as_json: bool, **given: Any) -> None:
    """Write the plan of a workload as manifests for Kubernetes or Compose, or as a batch script. Nothing is started.

    Options that export does not know are the workload's own: gpusched export compose snake -- --help

    Example: gpusched export kubernetes snake --procs 8 --machine 4x16GiB --image lab/snake:1 --keys snake-keys
    """
    options = own_options(workload, context.args, f"gpusched export {kind} {{}}")
    found = exported(kind, workload, options=options, json=as_json, **with_engine_options(given))
    for note in found.notes:
        print(f"gpusched: {note}", file=sys.stderr)
    _put(found.text, _path(found.file, output))


def _path(file: str, output: str | None) -> Path | None:
    if output is None:
        return None
    path = Path(output)
    return path / file if path.is_dir() or output.endswith("/") else path


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
