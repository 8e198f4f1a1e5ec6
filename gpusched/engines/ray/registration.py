"""What the engine `ray` registers: its options, and what is found out before anything is submitted."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from gpusched.engines.registry import ClusterEngine, EngineOption
from gpusched.errors import HostFault, UsageError
from gpusched.model.cluster_job import ClusterJob, Own

__all__ = ["ENGINE"]


def _checked(own: Own, environ: Mapping[str, str]) -> Own:
    """Return where Ray is, as typed or in the environment.

    Without an address it would start another cluster, and `ray://` is that of a client, which the driver is not.
    """
    (address,) = own.get("address") or (environ.get("RAY_ADDRESS", ""),)
    known = address == "auto" or (address and "://" not in address and address.rpartition(":")[2].isdecimal())
    if not known:
        message = f"{address} is no address of a cluster's head" if address else "which cluster of Ray?"
        raise UsageError(message, "give --address HOST:PORT, as `ray start` has it, or auto on a node of the cluster")
    return {"address": (address,)}


def _gpus(_: Own) -> int:
    message = "how many GPUs a node of Ray gives is not known before the job is there"
    raise UsageError(message, "give --gpus-per-node; with 0 no process gets one")


def _preflight(job: ClusterJob, _: str | None) -> ClusterJob:
    if find_spec("ray") is None:
        raise HostFault("Ray is not installed here", "pip install 'ray>=2.52', in the version of the cluster")
    return job


def _require_now(job: ClusterJob) -> None:
    """A Ray that is to take the job only later may not be up yet."""
    from gpusched.engines.ray.engine import require_answer

    require_answer(*job.own["address"])


def _needs(job: ClusterJob) -> str:
    from gpusched.engines.ray.requirements import needs_text

    return f"to Ray at {job.own['address'][0]}: {needs_text(job)}"


ENGINE: Final = ClusterEngine(
    module="gpusched.engines.ray.engine",
    options={
        "address": EngineOption(
            help="On Ray: where the cluster is. [default: $RAY_ADDRESS]",
            metavar="HOST:PORT",
            elsewhere="is where Ray is, and {engine} finds itself",
        )
    },
    checked=_checked,
    gpus=_gpus,
    preflight=_preflight,
    require_now=_require_now,
    needs=_needs,
)
