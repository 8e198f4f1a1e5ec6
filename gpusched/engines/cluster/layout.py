"""How many replicas of each role go on which node of a cluster: decided before it is known which nodes they are. Pure.

With devices, the planner's own answer for all of them together, as if they were in one host: they are all alike. Each
node then plans its share of the job again, on the devices that it really has.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.errors import NeverFits, UsageError
from gpusched.model.cluster_job import NodeShare
from gpusched.model.device import Device, Inventory
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner import Rules, plan
from gpusched.units import format_mib

__all__ = ["lay_out"]

_MOST_NODES: Final = 1024


def lay_out(
    request: Request, first_role: str, nodes: int, gpus: int, memory_mib: int, rules: Rules
) -> tuple[NodeShare, ...]:
    """Return the share of each of `nodes`, each with `gpus` devices of `memory_mib`; the first has `first_role`.

    Roles that need no device go where there are the fewest processes; one node has all, and plans for itself. Raises
    NeverFits, and UsageError for more nodes than there are processes, or than a role with whole devices can have.
    """
    if not 1 <= nodes <= _MOST_NODES:
        raise UsageError(f"--nodes: {nodes} nodes", f"give a number from 1 to {_MOST_NODES}")
    whole = [role.name for role in request.roles if role.devices is not None]
    if whole and nodes > 1:
        problem = f"role {whole[0]} asks for whole devices, and its process runs on one node"
        raise UsageError(problem, "give --nodes 1")
    placed: list[Counter[str]] = [Counter() for _ in range(nodes)]
    on_devices = [role for role in request.roles if gpus and nodes > 1 and role.memory is not None]
    if on_devices:
        _place_on_devices(placed, Request(workload=request.workload, roles=tuple(on_devices)), gpus, memory_mib, rules)
        placed.sort(key=lambda node: -node[first_role])  # stable: the node that has it comes first
    for role in request.roles:
        if role not in on_devices:
            _spread(placed, role, fixed=role.name == first_role)
    if not all(placed):
        total = sum(role.count for role in request.roles)
        raise UsageError(
            f"{total} processes on {nodes} nodes leave some without any", "give fewer --nodes, or more --procs"
        )
    return _counted([role.name for role in request.roles], placed)


def _place_on_devices(placed: list[Counter[str]], request: Request, gpus: int, memory_mib: int, rules: Rules) -> None:
    devices = tuple(
        Device(index=index, uuid=f"{index}", name="device", memory_total_mib=memory_mib, memory_used_mib=0)
        for index in range(len(placed) * gpus)
    )
    pool = Inventory(host="the nodes", source="profile", devices=devices, cpus=(0,))
    try:
        found = plan(request, pool, rules=rules)
    except NeverFits as error:
        nodes_text = f"{len(placed)} nodes with {gpus} GPU{'s' if gpus > 1 else ''} of {format_mib(memory_mib)} each"
        raise NeverFits(
            f"on {nodes_text}: {error.message}",
            "give more --nodes or fewer --procs, or --device-memory if they have more",
        ) from None
    for replica in found.replicas:
        placed[(replica.device_index or 0) // gpus][replica.role] += 1


def _spread(placed: list[Counter[str]], role: RoleRequest, *, fixed: bool) -> None:
    for _ in range(role.count):
        (placed[0] if fixed else min(placed, key=Counter.total))[role.name] += 1


def _counted(roles: Sequence[str], placed: Sequence[Counter[str]]) -> tuple[NodeShare, ...]:
    shares, before = [], Counter[str]()
    for node in placed:
        shares.append(
            NodeShare(counts={role: node[role] for role in roles}, first={role: before[role] for role in roles})
        )
        before += node
    return tuple(shares)
