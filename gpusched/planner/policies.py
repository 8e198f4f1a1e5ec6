"""Policies: each is one small function that narrows a problem, before the solver makes the least limit the largest.

A policy may lower how many replicas a room takes, close rooms, or bound how many rooms are used. It must not know roles
or devices, and the solver must not know policies. A problem that does not fit comes back narrowed no further.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.planner.problem import PackingProblem
from gpusched.planner.solve import is_feasible, max_min_limit, rooms_taken, smallest

__all__ = ["POLICIES", "Policy", "policy_named"]

Policy = Callable[[PackingProblem], PackingProblem]


def balanced(problem: PackingProblem) -> PackingProblem:
    """Leave the problem as it is: the least limit alone decides."""
    return problem


def exclusive(problem: PackingProblem) -> PackingProblem:
    """One replica to a device."""
    return _at_most(problem, 1)


def spread(problem: PackingProblem) -> PackingProblem:
    """As few replicas on the fullest device as possible."""
    if not is_feasible(problem):
        return problem
    everything = sum(need.count for need in problem.needs)
    return _at_most(problem, smallest(lambda most: is_feasible(_at_most(problem, most)), 0, everything))


def pack(problem: PackingProblem) -> PackingProblem:
    """As few devices as possible, of all such sets the one with the largest least limit: exact, see solve."""
    if not is_feasible(problem):
        return problem
    few = smallest(lambda most: is_feasible(replace(problem, most_rooms=most)), 0, len(problem.rooms))
    packed = replace(problem, most_rooms=few)
    taken = rooms_taken(packed, max_min_limit(packed) or 0)
    rooms = (room if i in taken else replace(room, most=0) for i, room in enumerate(problem.rooms))
    return replace(problem, rooms=tuple(rooms))


POLICIES: Final[dict[str, Policy]] = {"balanced": balanced, "pack": pack, "spread": spread, "exclusive": exclusive}


def policy_named(name: str) -> Policy:
    """Return the policy of that name. Raises UsageError, which lists them, if there is none."""
    if name not in POLICIES:
        raise UsageError(f"policy: {name!r} is not known", f"use one of: {', '.join(POLICIES)}")
    return POLICIES[name]


def _at_most(problem: PackingProblem, most: int) -> PackingProblem:
    return replace(problem, rooms=tuple(replace(room, most=min(room.most, most)) for room in problem.rooms))
