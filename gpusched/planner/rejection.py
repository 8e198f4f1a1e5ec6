"""Why a request has no place: never or not now, what is missing in numbers, and what would fit instead."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.lease import Lease
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.feasibility import Rules, any_fits, division, needs, relax_shares
from gpusched.planner.holders import held_lines
from gpusched.planner.plan_format import alone_lines, asked, foreign_lines, gpus, listed, needed_by
from gpusched.planner.policies import Policy, policy_named
from gpusched.planner.problem import PackingProblem, SearchLimitExceeded
from gpusched.planner.solve import is_feasible, largest
from gpusched.planner.whole_devices import allotments, with_all
from gpusched.units import number

__all__ = ["refusal"]


def refusal(
    request: Request,
    capacities: Sequence[DeviceCapacity],
    leases: Sequence[Lease],
    rules: Rules,
    excluded: tuple[str, ...],
) -> DoesNotFit:
    """Return the error for a request that `division` has no answer to: NotNow if it has one on idle devices."""
    if not capacities:
        return NeverFits(f"no device takes a replica: {'; '.join(excluded)}", "see gpusched status")
    extra = (*alone_lines(capacities), *excluded)
    if any(role.devices is not None and role.count for role in request.roles):
        return _whole_refusal(request, capacities, leases, rules, extra)
    return _shared_refusal(request, capacities, rules, extra)


def _whole_refusal(
    request: Request,
    capacities: Sequence[DeviceCapacity],
    leases: Sequence[Lease],
    rules: Rules,
    extra: tuple[str, ...],
) -> DoesNotFit:
    """Return the error for a request with replicas that ask for whole devices."""
    idle = [capacity.emptied for capacity in capacities]
    needed = f"needs {needed_by(request.roles, rules.context_mib)}"
    if division(request, idle, rules.context_mib, policy_named(rules.policy)) is not None:
        free = sum(capacity.is_whole for capacity in capacities)
        hint = f"wait: {free} of {len(capacities)} GPUs {'is' if free == 1 else 'are'} whole now"
        return NotNow("; ".join([needed, *held_lines(capacities, leases)]), "; ".join([hint, *extra]))
    where = gpus([capacity.device.label for capacity in capacities])
    given = next(allotments(with_all(request, 1), idle, rules.context_mib), None)
    if given is not None:
        whole = number(sum(map(len, given.values())), "whole GPU")
        hint = "ask for fewer whole GPUs, or for fewer or smaller others; --procs max finds how many fit"
        why_not = f"beside {whole} the others have no place on {where}{_under(rules.policy)}"
        return NeverFits(f"{needed}; {why_not}", "; ".join([hint, *extra]))
    mig = any(capacity.device.mig_index is not None for capacity in capacities)
    why = "; a process sees one MIG instance at the most" if mig else ""
    hint = "ask for fewer, or take a machine with more devices"
    return NeverFits(f"{needed}, and there is {where}, each for one replica{why}", "; ".join([hint, *extra]))


def _shared_refusal(
    request: Request, capacities: Sequence[DeviceCapacity], rules: Rules, extra: tuple[str, ...]
) -> DoesNotFit:
    """Return the error for a request without such replicas, each at its minimum."""
    rooms = tuple(capacity.now for capacity in capacities)
    now = relax_shares(PackingProblem(rooms=rooms, needs=needs(request, rules.context_mib)))
    idle = replace(now, rooms=tuple(capacity.emptied.now for capacity in capacities))
    policy = policy_named(rules.policy)
    never = not any_fits(idle, policy)
    seen = idle if never else now
    do_not = "does not" if sum(need.count for need in now.needs) == 1 else "do not"
    what = f"{asked(request.roles)} {'can never' if never else do_not} fit on"
    where = gpus([capacity.device.label for capacity in capacities]) + _under(rules.policy)
    role = _largest_role(request)
    fitting, memory = (_most(seen, policy, request.roles.index(role), field) for field in ("count", "min_mib"))
    short = _too_large(seen, request, capacities) or _missing(seen, role, fitting)
    ways = [f"at most {number(fitting, role.name)}"] if fitting else []
    ways += [f"at most {memory} MiB for each {role.name}"] if memory else []
    ways += ["policy balanced"] if policy.refuses and is_feasible(seen) else []
    if never:
        hint = f"ask for {', or for '.join(ways)}" if ways else "take a machine with more or larger devices"
        return NeverFits(f"{what} {where}: {short}", "; ".join([hint, *extra]))
    leased, foreign = (
        sum(capacity.leased_mib for capacity in capacities),
        sum(capacity.foreign_mib for capacity in capacities),
    )
    held = [f"{mib} MiB are {by}" for mib, by in ((leased, "leased"), (foreign, "held by others")) if mib]
    why_not = f"it would on idle devices, but {listed(held)}" if held else "it would on idle devices"
    hint = f"wait, or ask for {', or for '.join(ways)}" if ways else "wait until memory is free"
    return NotNow(f"{what} {where} now: {short}; {why_not}", "; ".join([hint, *foreign_lines(capacities), *extra]))


def _under(policy: str) -> str:
    return f" with policy {policy}" if policy_named(policy).refuses else ""


def _largest_role(request: Request) -> RoleRequest:
    """Return the role that a person would ask less of: the largest elastic one, else the largest."""
    placed = [role for role in request.roles if role.memory is not None and role.count]
    return max(placed, key=lambda role: (role.memory is not None and role.memory.share is None, role.count))


def _most(problem: PackingProblem, policy: Policy, role: int, field: Literal["count", "min_mib"]) -> int:
    """Return the largest number, or minimum in MiB, of one role with which all has a place, up to what it asks for.

    0 if there is none, or if it is unknown.
    """
    least = 0 if field == "count" else 1

    def holds(value: int) -> bool:
        changed = list(problem.needs)
        changed[role] = replace(changed[role], **{field: value})
        return any_fits(replace(problem, needs=tuple(changed)), policy)

    try:
        return largest(holds, least, getattr(problem.needs[role], field)) if holds(least) else 0
    except SearchLimitExceeded:
        return 0


def _too_large(problem: PackingProblem, request: Request, capacities: Sequence[DeviceCapacity]) -> str:
    """Return which role needs more than any one device has, or nothing."""
    rooms = problem.rooms
    best = max(range(len(rooms)), key=lambda i: (rooms[i].most > 0, rooms[i].plannable_mib))
    if not rooms[best].most:
        return "their compute mode lets one process in, and there is one"
    there = f"{rooms[best].plannable_mib} of {rooms[best].total_mib} MiB on GPU {capacities[best].device.label}"
    for role, need in zip(request.roles, problem.needs, strict=True):
        if need.count and need.least_mib > rooms[best].plannable_mib:
            size = f"{need.min_mib} + {need.context_mib} = {need.least_mib} MiB"
            return f"one {role.name} takes {size}, and the most that can be planned on one device is {there}"
    return ""


def _missing(problem: PackingProblem, role: RoleRequest, fitting: int) -> str:
    needed = sum(need.count * need.least_mib for need in problem.needs)
    there = sum(room.plannable_mib for room in problem.rooms)
    contexts = {need.context_mib for need in problem.needs if need.count}
    each = f"{contexts.pop()} MiB of context each" if len(contexts) == 1 else "the context of each"
    sums = f"with {each} they take {needed} MiB, and {there} MiB can be planned"
    if fitting:
        missing = role.count - fitting
        fit, are = ("fits" if fitting == 1 else "fit"), ("is" if missing == 1 else "are")
        return f"{sums}; {fitting} of {number(role.count, role.name)} {fit}, {missing} {are} missing"
    if needed > there:
        return sums
    replicas, places = sum(need.count for need in problem.needs), sum(room.most for room in problem.rooms)
    if replicas > places:
        return f"{sums}, but only {number(places, 'replica')} may be placed there, and there are {replicas}"
    return f"{sums}, in pieces that have no place side by side"
