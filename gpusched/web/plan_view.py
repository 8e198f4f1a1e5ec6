"""A plan as the page draws it, for what a person tries: how many, which machine, how much memory."""

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Final

from gpusched.api.catalog import workload_names
from gpusched.api.planning import Plan, machines, plan, policies
from gpusched.errors import UsageError
from gpusched.model.plan import DevicePlan, Replica
from gpusched.settings import HERE

__all__ = ["choices", "plan_view"]

_ASKED: Final = ("procs", "learner_memory", "actor_memory", "policy")
_DESCRIBED: Final = re.compile(r"(\d{1,2}x[\d.]{1,9}[a-z]{1,3}\+?){1,4}", re.ASCII | re.IGNORECASE)
"""What can be no path; the planner reads it, and refuses what is no machine."""


def choices() -> dict[str, object]:
    """Return what there is to choose from. Raises HostFault."""
    return {"machines": [HERE, *machines()], "workloads": workload_names(), "policies": policies()}


def plan_view(asked: Mapping[str, str]) -> dict[str, object]:
    """Return the plan for `asked`, each entry as typed on the command line; memory in MiB.

    The workload is one of `choices`, and the machine, too, or one that is described: no file is read that a request
    names. Raises UsageError, NeverFits, NotNow and HostFault.
    """
    workload, machine = asked.get("workload") or "snake", asked.get("machine") or HERE
    known = machine in (HERE, *machines()) or _DESCRIBED.fullmatch(machine)
    if workload not in workload_names() or not known:
        raise UsageError(
            f"{workload} on {machine} cannot be planned here", "choose from the lists, or describe a machine: 4x16GiB"
        )
    procs, learner, actor, policy = (asked.get(name) or None for name in _ASKED)
    found = plan(
        workload,
        machine=machine,
        procs=procs,
        learner_memory=learner,
        actor_memory=actor,
        policy=policy,
        grow=asked.get("grow") != "no",
    )
    return {
        "counts": list(found.counts),
        "host": found.inventory.host,
        "devices": [_device(found, device) for device in found.devices],
        "why": list(found.why),
        "warnings": list(found.warnings),
    }


def _device(found: Plan, device: DevicePlan) -> dict[str, object]:
    here = [one for one in found.replicas if one.name in set(device.replicas)]
    runs = [list(run) for _, run in groupby(here, key=lambda one: (one.role, one.share_mib))]
    return {
        "label": device.label,
        "name": device.name,
        "total": device.total_mib,
        "roles": [_role(run) for run in runs],
        "kept": {
            "jobs": device.leased_mib,
            "foreign": device.foreign_mib,
            "reserved": device.reserved_mib,
            "headroom": device.headroom_mib,
            "free": device.plannable_mib - device.planned_mib,
        },
    }


def _role(run: list[Replica]) -> dict[str, object]:
    return {"role": run[0].role, "count": len(run), "share": run[0].share_mib, "limit": run[0].limit_mib}
