"""Why a request has no place: never or not now, what is missing in numbers, and what would fit instead."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from gpusched.errors import DoesNotFit, NeverFits, NotNow
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner.capacity import DeviceCapacity
from gpusched.planner.feasibility import Rules, needs, relax_shares
from gpusched.planner.plan_format import alone_lines, asked, foreign_lines, gpus, listed, number
from gpusched.planner.policies import policy_named
from gpusched.planner.problem import PackingProblem, SearchLimitExceeded
from gpusched.planner.solve import is_feasible, largest

__all__ = ["Attempt", "attempt_on", "refusal", "what_would_fit"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What was rejected: `problem` has each role at its minimum."""

    request: Request
    problem: PackingProblem
    policy: str
    grounds: tuple[DeviceCapacity, ...]
    excluded: tuple[str, ...]

    def is_feasible(self, problem: PackingProblem) -> bool:
        """Return whether everything of the problem has a place under the policy."""
        return is_feasible(policy_named(self.policy)(problem))


def attempt_on(grounds: Sequence[DeviceCapacity], request: Request, rules: Rules, excluded: tuple[str, ...]) -> Attempt:
    """Return the attempt to place, on these devices, all of the request that wants no whole device."""
    rooms = tuple(budget.now for budget in grounds)
    problem = PackingProblem(rooms=rooms, needs=needs(request), context_mib=rules.context_mib)
    return Attempt(
        request=request,
        problem=relax_shares(problem),
        policy=rules.policy,
        grounds=tuple(grounds),
        excluded=excluded,
    )


def refusal(attempt: Attempt) -> DoesNotFit:
    """Return the error for an attempt: NotNow if it would succeed on idle devices, else NeverFits."""
    grounds, excluded = attempt.grounds, attempt.excluded
    if not grounds:
        return NeverFits(f"no device takes a replica: {'; '.join(excluded)}", "see gpusched status")
    idle = replace(attempt.problem, rooms=tuple(budget.emptied.now for budget in grounds))
    never = not attempt.is_feasible(idle)
    seen = idle if never else attempt.problem
    alone = sum(need.count for need in attempt.problem.needs) == 1
    do_not = "does not" if alone else "do not"
    what = f"{asked(attempt.request.roles)} {'can never' if never else do_not} fit on"
    where = gpus([budget.device.label for budget in grounds])
    if attempt.policy != "balanced":
        where += f" with policy {attempt.policy}"
    role = _largest_role(attempt.request)
    fitting = _most(attempt, seen, role, "count")
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
    role = _largest_role(attempt.request)
    return _most(attempt, attempt.problem, role, "count"), _most(attempt, attempt.problem, role, "min_mib")


def _largest_role(request: Request) -> RoleRequest:
    """Return the role that a person would ask less of: the largest elastic one, else the largest."""
    placed = [role for role in request.roles if role.memory is not None and role.count]
    return max(placed, key=lambda role: (role.memory is not None and role.memory.share is None, role.count))


def _most(attempt: Attempt, problem: PackingProblem, role: RoleRequest, field: Literal["count", "min_mib"]) -> int:
    """Return the largest number, or minimum in MiB, of one role with which all has a place, up to what it asks for.

    0 if there is none, or if it is unknown.
    """
    index = attempt.request.roles.index(role)
    least = 0 if field == "count" else 1

    def holds(value: int) -> bool:
        changed = list(problem.needs)
        changed[index] = replace(changed[index], **{field: value})
        return attempt.is_feasible(replace(problem, needs=tuple(changed)))

    try:
        return largest(holds, least, getattr(problem.needs[index], field)) if holds(least) else 0
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
    memory = _most(attempt, problem, role, "min_mib")
    ways = [f"at most {number(fitting, role.name)}"] if fitting else []
    if memory:
        ways.append(f"at most {memory} MiB for each {role.name}")
    if attempt.policy != "balanced" and is_feasible(problem):
        ways.append("policy balanced")
    return ways
