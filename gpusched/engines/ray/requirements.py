"""What a group needs of Ray, and whether Ray has it. Pure: it imports no Ray."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpusched.errors import HostFault, NeverFits
from gpusched.model.cluster_job import ClusterJob

__all__ = ["needs_of", "needs_text", "require_nodes", "require_secret"]


def needs_of(group: ClusterJob) -> dict[str, float]:
    """Return the resources of one bundle: what a node of the group takes. To Ray they are numbers that it counts."""
    gpus = {"GPU": float(group.gpus)} if group.gpus else {}
    return {"CPU": float(group.cpus or 1), **gpus}


def needs_text(group: ClusterJob) -> str:
    """Return what the group needs: `3 nodes, each with 1 CPU and 2 GPUs of Ray`."""
    cpus = group.cpus or 1
    each = f"{cpus} CPU{'s' if cpus > 1 else ''}"
    if group.gpus:
        each += f" and {group.gpus} GPU{'s' if group.gpus > 1 else ''}"
    return f"{len(group.nodes)} node{'s' if len(group.nodes) > 1 else ''}, each with {each} of Ray"


def require_nodes(group: ClusterJob, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Raise NeverFits if too few of `nodes`, as ray.nodes() has them, could do a part, even without other users.

    Ray would let the group wait for ever, as a node could still be added.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    able = sum(all(has.get(name, 0.0) >= least for name, least in needs_of(group).items()) for has in alive)
    if able < len(group.nodes):
        problem = f"Ray has {len(alive)} node{'s' if len(alive) != 1 else ''}, and {able} of them could take a part"
        raise NeverFits(
            f"{problem}: this needs {needs_text(group)}", "give fewer --nodes, --gpus-per-node or --cpus-per-node"
        )


def require_secret(node: str, address: str, driver: str, *, asks_for_token: bool) -> None:
    """Raise HostFault where keys would go to another host through a Ray that lets each user in."""
    if not asks_for_token and address != driver:
        problem = (
            f"Ray on {node} asks for no token: each user who can reach it could take the job's keys, and run anything"
        )
        raise HostFault(problem, "have all of Ray started with RAY_AUTH_MODE=token (docs/clusters.md)")
