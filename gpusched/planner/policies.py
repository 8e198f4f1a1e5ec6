"""Policies: each narrows a problem by small functions, before the solver makes the least limit the largest.

A policy may lower how many replicas a room takes, or close rooms. It must not know roles or devices, and the solver
must not know policies.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.planner.problem import Bin, PackingProblem, SearchLimitExceeded
from gpusched.planner.solve import is_feasible, largest, smallest

__all__ = ["POLICIES", "Policy", "fewest_rooms", "policy_and_growth", "policy_named"]

_SHORT_SEARCH: Final = 60_000
"""Steps, about 5 ms: packing asks many times, and a queue waits for it."""

Narrowing = Callable[[PackingProblem], PackingProblem]


def _as_it_is(problem: PackingProblem) -> PackingProblem:
    return problem


class Policy(NamedTuple):
    """What may be: `allows` decides what fits. What is best of it: `prefers` never turns a fit into none."""

    allows: Narrowing = _as_it_is
    prefers: Narrowing = _as_it_is

    @property
    def refuses(self) -> bool:
        """Whether something may fit that it does not allow."""
        return self.allows is not _as_it_is


def exclusive(problem: PackingProblem) -> PackingProblem:
    """One replica to a device."""
    return _at_most(problem, 1)


def spread(problem: PackingProblem) -> PackingProblem:
    """As few replicas on the fullest device as possible."""
    everything = sum(need.count for need in problem.needs)
    return _at_most(problem, smallest(lambda most: is_feasible(_at_most(problem, most)), 0, everything))


def pack(problem: PackingProblem) -> PackingProblem:
    """As few devices as possible, of all such sets the fullest: the emptiest stays free where it can, then the next.

    A device that is not in use counts as emptier than any other, so that whole devices stay whole. Of equal ones the
    first are taken. Roles of many sizes are packed only as far as a short search finds out.
    """
    packed = replace(problem, most_rooms=fewest_rooms(problem))
    by_emptiness = sorted(range(len(problem.rooms)), key=lambda i: (_emptiness(problem.rooms[i]), -i))
    for _, equal in groupby(by_emptiness, lambda i: problem.rooms[i]):
        packed = _most_closed(packed, list(equal))
    return replace(packed, most_rooms=problem.most_rooms)


def _most_closed(problem: PackingProblem, places: Sequence[int]) -> PackingProblem:
    """Close as many of the equal rooms at `places`, the first ones first, as leave everything a place."""

    def without(number: int) -> PackingProblem:
        closed = {*places[:number]}
        rooms = (replace(room, most=0) if i in closed else room for i, room in enumerate(problem.rooms))
        return replace(problem, rooms=tuple(rooms))

    return without(largest(lambda number: _surely_fits(without(number)), 0, len(places)))


def fewest_rooms(problem: PackingProblem) -> int:
    """Return how many rooms are enough at the minima, as far as a short search finds out. It must fit."""
    return smallest(lambda most: _surely_fits(replace(problem, most_rooms=most)), 0, len(problem.rooms))


def _surely_fits(problem: PackingProblem) -> bool:
    """Return whether everything has a place, as far as a short search finds out."""
    try:
        return is_feasible(problem, most_steps=_SHORT_SEARCH)
    except SearchLimitExceeded:
        return False


def _emptiness(room: Bin) -> tuple[bool, int, int, int]:
    """Return by what rooms are sorted, the emptiest first; those with equal keys are equal."""
    return not room.whole, -room.plannable_mib, -room.total_mib, -room.most


POLICIES: Final[dict[str, Policy]] = {
    "balanced": Policy(),
    "pack": Policy(prefers=pack),
    "spread": Policy(prefers=spread),
    "exclusive": Policy(allows=exclusive),
}


def policy_and_growth(policy: str | None, grow: bool | None) -> tuple[str, bool]:  # noqa: FBT001 (as it was typed)
    """Return both as they are meant. By default what is packed does not grow, and what does not grow is packed."""
    grows = policy != "pack" if grow is None else grow
    return policy or ("balanced" if grows else "pack"), grows


def policy_named(name: str) -> Policy:
    """Return the policy of that name. Raises UsageError, which lists them, if there is none."""
    if name not in POLICIES:
        raise UsageError(f"policy: {name!r} is not known", f"use one of: {', '.join(POLICIES)}")
    return POLICIES[name]


def _at_most(problem: PackingProblem, most: int) -> PackingProblem:
    return replace(problem, rooms=tuple(replace(room, most=min(room.most, most)) for room in problem.rooms))
