"""Whether a request has a place, without saying where: what the planner asks first, and a queue over and over."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpusched.model.plan import Request
from gpusched.model.workload import Memory
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.policies import Policy, policy_named
from gpusched.planner.problem import UNBOUNDED, Bin, Demand, PackingProblem
from gpusched.planner.solve import is_feasible
from gpusched.planner.whole_devices import WholeDeviceAssignment, allotments, with_all

__all__ = [
    "Rules",
    "WholeDeviceSplit",
    "any_fits",
    "division",
    "needs",
    "relax_shares",
    "request_fits",
    "with_count",
    "without_growth",
]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan keeps to. `headroom` in 1/10 000 of a device; `only` are the uuids to use, None for all.

    `grow`: replicas get what is left over, up to their maximum; else each gets its minimum.

    `notes`: lines on where `only` is from, for the plan's warnings and for whom it refuses.

    `context_mib`: what a replica takes on a device before it allocates anything, where its role states nothing else.
    """

    policy: str = "balanced"
    grow: bool = True
    context_mib: int = 450
    headroom: int = 200
    only: frozenset[str] | None = None
    notes: tuple[str, ...] = ()


class WholeDeviceSplit(NamedTuple):
    """The roles with whole devices, and the problem that is left: the others, on the devices that are left."""

    whole: WholeDeviceAssignment
    problem: PackingProblem


def division(
    request: Request, capacities: Sequence[DeviceCapacity], context_mib: int, policy: Policy
) -> WholeDeviceSplit | None:
    """Return the first way to give whole devices beside which everything else has a place, or None if there is none.

    A role that asks for all devices is content with one.
    """
    request = with_all(request, 1)
    for whole in allotments(request, capacities, context_mib):
        problem = _beside(whole, request, capacities, context_mib)
        if _has_place(problem, policy):
            return WholeDeviceSplit(whole, problem)
    return None


def _beside(
    whole: WholeDeviceAssignment, request: Request, capacities: Sequence[DeviceCapacity], context_mib: int
) -> PackingProblem:
    """Return what is left when the devices of `whole` are given: these take no other replica."""
    taken = {piece.capacity.device.uuid for pieces in whole.values() for piece in pieces}
    rooms = (
        Bin(0, capacity.total_mib, 0) if capacity.device.uuid in taken else capacity.now for capacity in capacities
    )
    return PackingProblem(rooms=tuple(rooms), needs=needs(request, context_mib))


def _has_place(problem: PackingProblem, policy: Policy) -> bool:
    wanted = sum(need.count * need.least_mib for need in problem.needs)
    if wanted > sum(room.plannable_mib for room in problem.rooms):
        return False
    return not wanted or any_fits(problem, policy)


def request_fits(request: Request, capacities: Sequence[DeviceCapacity], context_mib: int, policy: str) -> bool:
    """Return whether everything that needs a device has a place on `capacities` at its minimum.

    More memory on any device never turns a yes into a no. Raises UsageError as `plan` does.
    """
    return division(request, capacities, context_mib, policy_named(policy)) is not None


def any_fits(problem: PackingProblem, policy: Policy) -> bool:
    """Return whether everything has a place at its minimum."""
    return is_feasible(policy.allows(relax_shares(problem)))


def needs(request: Request, context_mib: int) -> tuple[Demand, ...]:
    """Return one need per role, in the roles' order; a role without memory, or with whole devices, needs no room.

    `context_mib` is that of a role that states none.
    """
    return tuple(_need(role.count, role.memory, role.context_or(context_mib)) for role in request.roles)


def _need(count: int, memory: Memory | None, context_mib: int) -> Demand:
    if memory is None:
        return Demand(0, 0, context_mib=context_mib)
    most = UNBOUNDED if memory.max_mib is None else memory.max_mib
    return Demand(count, memory.min_mib, memory.share, most, context_mib)


def without_growth(problem: PackingProblem) -> PackingProblem:
    """Return the problem in which each replica gets its minimum."""
    content = (replace(need, share=None, max_mib=need.min_mib) for need in problem.needs)
    return replace(problem, needs=tuple(content))


def relax_shares(problem: PackingProblem) -> PackingProblem:
    """Return the problem in which a role that asks for a share is content with its minimum."""
    content = (need if need.share is None else replace(need, share=0) for need in problem.needs)
    return replace(problem, needs=tuple(content))


def with_count(request: Request, name: str, count: int) -> Request:
    """Return the request with `count` replicas of the role `name`."""
    roles = (replace(role, count=count) if role.name == name else role for role in request.roles)
    return replace(request, roles=tuple(roles))
