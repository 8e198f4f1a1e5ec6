"""Why a request has no place: never or not now, what is missing in numbers, and what would fit instead."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.plan_format import alone_lines, asked, foreign_lines, gpus, listed, number
from gpusched.planner.problem import PackingProblem, SearchLimitExceeded
from gpusched.planner.solve import is_feasible, largest

__all__ = ["Attempt", "refusal", "what_would_fit"]

Fits = Callable[[PackingProblem], bool]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What was rejected: the problem with each role at its minimum, and `is_feasible`, which heeds the policy."""

    request: Request
    problem: PackingProblem
    policy: str
    grounds: tuple[DeviceCapacity, ...]
    excluded: tuple[str, ...]
    is_feasible: Fits


def refusal(attempt: Attempt) -> DoesNotFit:
    """Return the error for an attempt: NotNow if it would succeed on idle devices, else NeverFits."""
    grounds, excluded = attempt.grounds, attempt.excluded
    if not grounds:
        return NeverFits(f"no device takes a replica: {'; '.join(excluded)}", "see gpusched status")
    idle = replace(attempt.problem, rooms=tuple(budget.idle for budget in grounds))
    never = not attempt.is_feasible(idle)
    seen = idle if never else attempt.problem
    alone = sum(need.count for need in attempt.problem.needs) == 1
    do_not = "does not" if alone else "do not"
    what = f"{asked(attempt.request.roles)} {'can never' if never else do_not} fit on"
    where = gpus([budget.device.label for budget in grounds])
    if attempt.policy != "balanced":
        where += f" with policy {attempt.policy}"
    role = _largest_role(attempt.request)
    fitting = _number_fitting(seen, attempt.request.roles.index(role), attempt.is_feasible)
    short = _too_large(attempt, seen) or _missing(seen, role, fitting)
    ways = _ways(attempt, seen, role, fitting)
    if never:
        hint = f"ask for {', or for '.join(ways)}" if ways else "take a machine with more or larger devices"
        return NeverFits(f"{what} {where}: {short}", "; ".join([hint, *alone_lines(grounds), *excluded]))
    leased, foreign = sum(budget.leased_mib for budget in grounds), sum(budget.foreign_mib for budget in grounds)
    held = [f"{mib} MiB are {by}" for mib, by in ((leased, "leased"), (foreign, "held by others")) if mib]
    why_not = f"it would on idle devices, but {listed(held)}" if held else "it would on idle devices"
    hint = f"wait, or ask for {', or for '.join(ways)}" if ways else "wait until memory is free"
    return NotNow(
        f"{what} {where} now: {short}; {why_not}",
        "; ".join([hint, *foreign_lines(grounds), *alone_lines(grounds), *excluded]),
    )


def what_would_fit(attempt: Attempt) -> tuple[int, int]:
    """Return how many replicas of the role that a person would ask less of fit, and else with how many MiB each."""
    index = attempt.request.roles.index(_largest_role(attempt.request))
    problem, is_feasible = attempt.problem, attempt.is_feasible
    return _number_fitting(problem, index, is_feasible), _memory_fitting(problem, index, is_feasible)


def _largest_role(request: Request) -> RoleRequest:
    """Return the role that a person would ask less of: the largest elastic one, else the largest."""
    placed = [role for role in request.roles if role.memory is not None and role.count]
    return max(placed, key=lambda role: (role.memory is not None and role.memory.share is None, role.count))


def _with_need(
    problem: PackingProblem, index: int, *, count: int | None = None, min_mib: int | None = None
) -> PackingProblem:
    needs = list(problem.needs)
    need = needs[index]
    needs[index] = replace(
        need, count=need.count if count is None else count, min_mib=need.min_mib if min_mib is None else min_mib
    )
    return replace(problem, needs=tuple(needs))


def _number_fitting(problem: PackingProblem, index: int, is_feasible: Fits) -> int:
    """Return how many replicas of one need fit beside all others; 0 if not even the others do, or if unknown."""
    try:
        if not is_feasible(_with_need(problem, index, count=0)):
            return 0
        return largest(
            lambda count: is_feasible(_with_need(problem, index, count=count)), 0, problem.needs[index].count
        )
    except SearchLimitExceeded:
        return 0


def _memory_fitting(problem: PackingProblem, index: int, is_feasible: Fits) -> int:
    """Return the largest minimum (MiB) with which as many replicas as asked for fit; 0 if none, or if unknown."""
    try:
        if not is_feasible(_with_need(problem, index, min_mib=1)):
            return 0
        return largest(
            lambda mib: is_feasible(_with_need(problem, index, min_mib=mib)), 1, problem.needs[index].min_mib
        )
    except SearchLimitExceeded:
        return 0


def _too_large(attempt: Attempt, problem: PackingProblem) -> str:
    """Return which role needs more than any one device has, or nothing."""
    rooms, grounds = problem.rooms, attempt.grounds
    best = max(range(len(rooms)), key=lambda i: (rooms[i].most > 0, rooms[i].plannable_mib))
    if not rooms[best].most:
        return "their compute mode lets one process in, and there is one"
    there = f"{rooms[best].plannable_mib} of {rooms[best].total_mib} MiB on GPU {grounds[best].device.label}"
    for role, need in zip(attempt.request.roles, problem.needs, strict=True):
        if need.count and need.min_mib + problem.context_mib > rooms[best].plannable_mib:
            size = f"{need.min_mib} + {problem.context_mib} = {need.min_mib + problem.context_mib} MiB"
            return f"one {role.name} takes {size}, and the most that can be planned on one device is {there}"
    return ""


def _missing(problem: PackingProblem, role: RoleRequest, fitting: int) -> str:
    needed = sum(need.count * (need.min_mib + problem.context_mib) for need in problem.needs)
    there = sum(room.plannable_mib for room in problem.rooms)
    sums = f"with {problem.context_mib} MiB of context each they take {needed} MiB, and {there} MiB can be planned"
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


def _ways(attempt: Attempt, problem: PackingProblem, role: RoleRequest, fitting: int) -> list[str]:
    """Return what would fit instead, as a person would ask for it."""
    memory = _memory_fitting(problem, attempt.request.roles.index(role), attempt.is_feasible)
    ways = [f"at most {number(fitting, role.name)}"] if fitting else []
    if memory:
        ways.append(f"at most {memory} MiB for each {role.name}")
    if attempt.policy != "balanced" and is_feasible(problem):
        ways.append("policy balanced")
    return ways
