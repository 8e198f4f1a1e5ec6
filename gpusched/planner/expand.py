"""From a plan to what others consume: the flat list of replica specs, and the JSON document of docs/reference.md.

It must not read an environment: Python's path, the directory and the variables of a job are arguments.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from gpusched.environment import resource_environment
from gpusched.model.plan import Plan, Replica, ReplicaSpec, RoleRequest
from gpusched.model.workload import Workload
from gpusched.units import FRACTION_ONE

__all__ = ["document", "filled_in", "numbered_from", "replica_specs"]

_IN_BRACES: Final = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{python\}")

Identity = Callable[[Replica], Mapping[str, str]]


def replica_specs(
    plan: Plan, workload: Workload, *, python: str, cwd: str, xla_variable: str, identity: Identity
) -> tuple[ReplicaSpec, ...]:
    """Return one spec per replica of `plan`: its role's command with `{python}` filled in, and its environment.

    `identity` gives what only the launched job knows (see identity_environment); `env` is a difference to the
    environment that the processes are started in. `xla_variable`: see resource_environment.
    """
    argv = {role.name: tuple(filled_in(word, python) for word in role.command) for role in workload.roles}
    return tuple(
        ReplicaSpec(
            replica=replica,
            argv=argv[replica.role],
            env=resource_environment(replica, xla_variable) | dict(identity(replica)),
            cwd=cwd,
        )
        for replica in plan.replicas
    )


def numbered_from(plan: Plan, first: Mapping[str, int]) -> Plan:
    """Return the plan with the ranks of each role counted from `first` on, where it names the role, and not from 0."""
    ranks = {one.name: (one.role, one.rank + first.get(one.role, 0)) for one in plan.replicas}
    names = {name: f"{role}.{rank}" for name, (role, rank) in ranks.items()}
    replicas = tuple(replace(one, name=names[one.name], rank=ranks[one.name][1]) for one in plan.replicas)
    devices = tuple(replace(one, replicas=tuple(names[name] for name in one.replicas)) for one in plan.devices)
    return replace(plan, replicas=replicas, devices=devices)


def filled_in(word: str, python: str) -> str:
    """Return a word of a workload's command with `{python}` filled in, and `{{name}}` as `{name}`.

    With `{python}` itself for `python` the word stays as it is: that of a command that was typed.
    """
    if python == "{python}":
        return word
    return _IN_BRACES.sub(lambda found: python if found[1] is None else f"{{{found[1]}}}", word)


def document(plan: Plan, xla_variable: str) -> dict[str, object]:
    """Return the plan as the JSON document of docs/reference.md; `env` limits a replica and names no job."""
    return {
        "host": plan.inventory.host,
        "source": plan.inventory.source,
        "counts": list(plan.counts),
        "devices": [
            {
                "index": device.index,
                "uuid": device.uuid,
                "name": device.name,
                "memory_total_mib": device.total_mib,
                "memory_plannable_mib": device.plannable_mib,
                "memory_planned_mib": device.planned_mib,
                "replicas": list(device.replicas),
            }
            for device in plan.devices
        ],
        "replicas": [_replica(replica, xla_variable) for replica in plan.replicas],
        "measured": [_measured(role) for role in plan.request.roles if role.measured is not None],
        "why": list(plan.why),
        "warnings": list(plan.warnings),
    }


def _measured(role: RoleRequest) -> dict[str, object]:
    return {"role": role.name, **to_builtins(role.measured)}


def _replica(replica: Replica, xla_variable: str) -> dict[str, object]:
    further = [
        {"device_index": share.device_index, "device_uuid": share.device_uuid, "share_mib": share.share_mib}
        for share in replica.further
    ]
    return {
        "name": replica.name,
        "role": replica.role,
        "rank": replica.rank,
        "device_index": replica.device_index,
        "device_uuid": replica.device_uuid,
        "limit_mib": replica.limit_mib,
        "context_mib": replica.context_mib,
        "share_mib": replica.share_mib,
        "fraction": replica.fraction / FRACTION_ONE,
        "cpus": list(replica.cpus),
        "env": resource_environment(replica, xla_variable),
        **({"further": further} if further else {}),
    }
