"""The planner's entry: from a request, an inventory, leases and rules to a plan, or to the reason why there is none."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Request
from gpusched.planner.capacity import DeviceCapacity, device_capacities, excluded_devices
from gpusched.planner.explain import Decision, fewer_than_usual, warnings, why, why_without_devices
from gpusched.planner.feasibility import (
    Rules,
    WholeDeviceSplit,
    division,
    needs,
    relax_shares,
    with_count,
    without_growth,
)
from gpusched.planner.measured_lines import measured_lines
from gpusched.planner.placement import Placement, replicas_without_devices
from gpusched.planner.policies import Policy, fewest_rooms, policy_named
from gpusched.planner.problem import PackingProblem, SearchLimitExceeded
from gpusched.planner.rejection import refusal
from gpusched.planner.request import MOST_REPLICAS, not_measured
from gpusched.planner.solve import is_feasible, largest, max_min_limit, place, without_maxima
from gpusched.planner.whole_devices import with_all

__all__ = ["Rules", "plan"]


def plan(
    request: Request,
    inventory: Inventory,
    leases: Sequence[Lease] = (),
    rules: Rules | None = None,
    maximise: str | None = None,
) -> Plan:
    """Return the plan that gives the least-served elastic replica the most memory that it may have (docs/reference.md).

    `maximise` names a role whose number is to be the largest that fits. Raises NeverFits, NotNow, or UsageError for an
    unknown policy, a request that asks for nothing, or one of too many sizes to try every way.
    """
    rules = rules or Rules()
    policy = policy_named(rules.policy)
    if maximise is not None:
        request = with_count(request, maximise, 1)
    if not any(role.count for role in request.roles):
        raise UsageError(f"{request.workload}: there is no process to place", "give a role a count above 0")
    if not inventory.devices:
        return _without_devices(request, inventory, rules, maximise)
    capacities = device_capacities(inventory, leases, rules.headroom, rules.only)
    for role in request.roles:
        if capacities and role.memory is not None and role.memory.first_mib == 0 and not role.memory.min_mib:
            raise not_measured(role.name)
    excluded = (*rules.notes, *excluded_devices(inventory, rules.only))
    search = _Search(request, capacities, rules.context_mib, policy)
    whole, problem = _divided(search, rules, leases, excluded)
    if maximise is not None:
        search = search.with_most(maximise, len(inventory.cpus))
    everything = frozenset(role.name for role in request.roles if role.devices == "all")
    if everything:
        search = search.with_all_devices()
    if search.request is not request:
        whole, problem = _divided(search, rules, leases, excluded)
    request, capacities = search.request, search.capacities
    narrowed, limit = next(_solutions(problem, policy, rules))
    placement = Placement(request, narrowed, limit, capacities, _placed(narrowed, limit), inventory.cpus, whole)
    replicas, devices = placement.replicas_and_devices()
    decision = Decision(
        request=request,
        rules=rules,
        problem=narrowed,
        limit_mib=limit,
        enough=fewest_rooms(relax_shares(problem)) if rules.policy == "spread" else None,
        devices=devices,
        replicas=replicas,
        maximised=maximise,
        everything=everything,
    )
    return Plan(
        inventory=inventory,
        request=request,
        policy=rules.policy,
        devices=devices,
        replicas=replicas,
        why=(*why(decision), *measured_lines(decision, search.most_of)),
        warnings=(*excluded, *warnings(inventory, capacities, replicas)),
    )


class _Search(NamedTuple):
    """A request on these devices, under one policy."""

    request: Request
    capacities: tuple[DeviceCapacity, ...]
    context_mib: int
    policy: Policy

    def division(self) -> WholeDeviceSplit | None:
        """Return a way to give whole devices beside which everything has a place at its minimum."""
        return division(self.request, self.capacities, self.context_mib, self.policy)

    def with_most(self, role: str, cpus: int) -> "_Search":
        """Return the search for as many replicas of `role` as fit when every role is content with its minimum."""
        (asked,) = (each for each in self.request.roles if each.name == role)
        if not asked.on_device:
            return self._with_count(role, _most_for_cpus(self.request, role, cpus))
        least = (need.least_mib for need in needs(self.request, self.context_mib) if need.count)
        size = min(least, default=0)
        ceiling = sum(capacity.now.plannable_mib // size for capacity in self.capacities if size)
        top = max(len(self.capacities), min(ceiling, MOST_REPLICAS))
        return self._with_count(role, largest(lambda count: self._with_count(role, count).is_feasible(), 1, top))

    def most_of(self, request: Request, role: str) -> int:
        """Return how many replicas of `role` another request could have here; 0 if not even one fits."""
        asked = self._replace(request=with_count(request, role, 1))
        if not asked.is_feasible():
            return 0
        return sum(each.count for each in asked.with_most(role, 0).request.roles if each.name == role)

    def with_all_devices(self) -> "_Search":
        """Return the search in which a role that wants all devices gets the most beside the others."""
        return self._with_all(largest(lambda number: self._with_all(number).is_feasible(), 1, len(self.capacities)))

    def is_feasible(self) -> bool:
        """Return whether everything has a place at its minimum."""
        return self.division() is not None

    def _with_count(self, role: str, count: int) -> "_Search":
        return self._replace(request=with_count(self.request, role, count))

    def _with_all(self, number: int) -> "_Search":
        return self._replace(request=with_all(self.request, number))


def _divided(search: _Search, rules: Rules, leases: Sequence[Lease], excluded: tuple[str, ...]) -> WholeDeviceSplit:
    """Return the division of `search`. Raises NeverFits or NotNow if there is none."""
    found = search.division()
    if found is not None:
        return found
    raise refusal(search.request, search.capacities, leases, rules, excluded)


def _solutions(problem: PackingProblem, policy: Policy, rules: Rules) -> Iterator[tuple[PackingProblem, int]]:
    """Yield the narrowed problem and its largest least limit: with the shares, then without, where they fit."""
    for candidate in (problem, relax_shares(problem)) if rules.grow else (without_growth(problem),):
        allowed = policy.allows(candidate)
        if is_feasible(allowed):
            try:
                narrowed = policy.prefers(allowed)
                yield narrowed, max_min_limit(narrowed) or 0
            except SearchLimitExceeded:
                yield allowed, max_min_limit(allowed) or 0


def _placed(problem: PackingProblem, limit_mib: int) -> list[list[int]]:
    """Return how many replicas of each need go where, as `place`; of too many sizes, as if they grew to fewer."""
    try:
        return place(problem, limit_mib)
    except SearchLimitExceeded:
        lifted = without_maxima(problem)
        return place(lifted, max_min_limit(lifted) or 0)


def _most_for_cpus(request: Request, role: str, cpus: int) -> int:
    """Return how many replicas of `role`, which needs no device, there are when every process has a CPU; at least 1."""
    return max(1, cpus - sum(each.count for each in request.roles if each.name != role))


def _one_for_each_cpu(request: Request, cpus: int) -> Request:
    """Return the request with at most `cpus` replicas of a role that would have a device and whose number is usual."""
    roles = (
        replace(role, count=min(role.count, max(1, cpus))) if role.usual and (role.on_device or role.low_cpu) else role
        for role in request.roles
    )
    return replace(request, roles=tuple(roles))


def _without_devices(request: Request, inventory: Inventory, rules: Rules, maximise: str | None) -> Plan:
    """Plan for a host without a GPU: no replica has a device or a limit, and only the CPUs bound how many there are."""
    if maximise is not None:
        request = with_count(request, maximise, _most_for_cpus(request, maximise, len(inventory.cpus)))
    usual, request = request, _one_for_each_cpu(request, len(inventory.cpus))
    replicas = replicas_without_devices(request, inventory.cpus)
    return Plan(
        inventory=inventory,
        request=request,
        policy=rules.policy,
        devices=(),
        replicas=replicas,
        why=why_without_devices(request, inventory, maximise, hidden=bool(rules.notes)),
        warnings=(*rules.notes, *fewer_than_usual(usual, request), *warnings(inventory, (), replicas)),
    )
