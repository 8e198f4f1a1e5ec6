"""A plan of one host as its part of a job of several: the same replicas, counted on from those of the other hosts."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpusched.model.plan import Plan

__all__ = ["numbered_from"]


def numbered_from(plan: Plan, first: Mapping[str, int]) -> Plan:
    """Return the plan with the ranks of each role counted from `first` on, where it names the role, and not from 0."""
    ranks = {one.name: (one.role, one.rank + first.get(one.role, 0)) for one in plan.replicas}
    names = {name: f"{role}.{rank}" for name, (role, rank) in ranks.items()}
    replicas = tuple(replace(one, name=names[one.name], rank=ranks[one.name][1]) for one in plan.replicas)
    devices = tuple(replace(one, replicas=tuple(names[name] for name in one.replicas)) for one in plan.devices)
    return replace(plan, replicas=replicas, devices=devices)
