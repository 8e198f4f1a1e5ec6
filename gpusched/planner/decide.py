"""The planner's entry: from a request, an inventory, leases and rules to a plan, or to the reason why there is none."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Request
from gpusched.planner.budget import budgets, left_out
from gpusched.planner.explain import Decision, warnings, why, why_without_devices
from gpusched.planner.fit import Rules, any_fits, giving_way, needs, with_count
from gpusched.planner.placement import Placement, replicas_without_devices
from gpusched.planner.policy import Policy, policy_named
from gpusched.planner.problem import Problem
from gpusched.planner.refuse import Attempt, refusal
from gpusched.planner.request import MOST_REPLICAS
from gpusched.planner.solve import fits, largest, largest_limit, place

__all__ = ["Rules", "plan"]


def plan(
    request: Request,
    inventory: Inventory,
    leases: Sequence[Lease] = (),
    rules: Rules | None = None,
    maximise: str | None = None,
) -> Plan:
    """Return the plan that gives the least-served elastic replica the most memory (docs/reference.md).

    `maximise` names a role whose number is to be the largest that fits. Raises NeverFits, NotNow, or UsageError for an
    unknown policy, a request that asks for nothing, or one of so many sizes that not every way can be tried.
    """
    rules = rules or Rules()
    policy = policy_named(rules.policy)
    if maximise is not None:
        request = with_count(request, maximise, 1)
    if not any(role.count for role in request.roles):
        raise UsageError(f"{request.workload}: there is no process to place", "give a role a count above 0")
    if not inventory.devices:
        return _without_devices(request, inventory, rules, maximise)
    grounds = budgets(inventory, leases, rules.headroom, rules.only)
    rooms = tuple(budget.now for budget in grounds)
    problem = Problem(rooms=rooms, needs=needs(request), context_mib=rules.context_mib)
    if not any_fits(problem, policy):
        attempt = Attempt(
            request=request,
            problem=giving_way(problem),
            policy=rules.policy,
            grounds=grounds,
            excluded=left_out(inventory, rules.only),
            fits=lambda changed: fits(policy(changed)),
        )
        raise refusal(attempt)
    if maximise is not None:
        request = with_count(request, maximise, _most(problem, request, maximise, policy, len(inventory.cpus)))
        problem = replace(problem, needs=needs(request))
    narrowed, limit = next(_solutions(problem, policy))
    placement = Placement(request, narrowed, limit, grounds, place(narrowed, limit), inventory.cpus)
    replicas, devices = placement.replicas_and_devices()
    decision = Decision(
        request=request,
        policy=rules.policy,
        problem=narrowed,
        limit_mib=limit,
        devices=devices,
        replicas=replicas,
        maximised=maximise,
    )
    return Plan(
        inventory=inventory,
        request=request,
        policy=rules.policy,
        devices=devices,
        replicas=replicas,
        why=why(decision),
        warnings=(*left_out(inventory, rules.only), *warnings(inventory, grounds, replicas)),
    )


def _solutions(problem: Problem, policy: Policy) -> Iterator[tuple[Problem, int]]:
    """Yield the narrowed problem and its largest least limit: with the shares, then without, where they fit."""
    for candidate in (problem, giving_way(problem)):
        narrowed = policy(candidate)
        limit = largest_limit(narrowed)
        if limit is not None:
            yield narrowed, limit


def _most(problem: Problem, request: Request, role: str, policy: Policy, cpus: int) -> int:
    """Return the largest number of replicas of `role` that fits when every role is content with its minimum."""
    if all(asked.memory is None for asked in request.roles if asked.name == role):
        return _most_for_cpus(request, role, cpus)

    def holds(count: int) -> bool:
        return any_fits(replace(problem, needs=needs(with_count(request, role, count))), policy)

    size = min(need.min_mib for need in problem.needs if need.count) + problem.context_mib
    ceiling = sum(room.plannable_mib // size for room in problem.rooms)
    return largest(holds, 1, min(max(1, ceiling), MOST_REPLICAS))


def _most_for_cpus(request: Request, role: str, cpus: int) -> int:
    """Return how many replicas of `role`, which needs no device, there are when every process has a CPU; at least 1."""
    return max(1, cpus - sum(each.count for each in request.roles if each.name != role))


def _without_devices(request: Request, inventory: Inventory, rules: Rules, maximise: str | None) -> Plan:
    """Plan for a host without a GPU: no replica has a device or a limit, and only the CPUs bound how many there are."""
    if maximise is not None:
        request = with_count(request, maximise, _most_for_cpus(request, maximise, len(inventory.cpus)))
    replicas = replicas_without_devices(request, inventory.cpus)
    return Plan(
        inventory=inventory,
        request=request,
        policy=rules.policy,
        devices=(),
        replicas=replicas,
        why=why_without_devices(request, inventory, maximise),
        warnings=warnings(inventory, (), replicas),
    )
