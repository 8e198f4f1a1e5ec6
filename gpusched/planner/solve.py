"""The exact solver: rooms and needs in, the largest least limit and a placement out.

The question. Every *room* (device) has plannable memory and a most number of replicas. Every *need* (role) asks for a
number of replicas; one that asks for a share has a floor per room, an elastic one gets x, but at least its minimum and
at most its maximum, the same everywhere. What is the largest x for which all have a place?

The answer is a binary search on x, because a placement for x is one for every smaller x too; `search` answers for one
x. One share replica and one elastic role, the usual workload, cost a few sums over the rooms. In general it is rooms x
states x ways to fill one room, where states = product of (count + 1) over the kinds that are not counted.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gpusched.planner.problem import UNBOUNDED, Demand, DemandGroup, PackingProblem
from gpusched.planner.search import MOST_STEPS, PackingSearch

__all__ = [
    "apportion",
    "is_feasible",
    "largest",
    "max_min_limit",
    "most_counted",
    "place",
    "smallest",
    "without_maxima",
]


def is_feasible(problem: PackingProblem, x: int = 0, most_steps: int = MOST_STEPS) -> bool:
    """Return whether every replica has a place when no elastic one gets less than `x` MiB that may have as much.

    A placement for more is one for `x`, and the more needs are lifted to one size, the fewer sizes there are to search:
    so the larger minima are tried first, beyond maxima too. Raises SearchLimitExceeded after `most_steps`.
    """
    elastic = [need for need in problem.needs if need.count and need.share is None]
    sizes, minima = {need.limit_mib(x) for need in elastic}, {need.min_mib for need in elastic if need.min_mib > x}
    if len(sizes) > 1:
        minima.add(max(sizes))
    lifted = without_maxima(problem)
    searches = (PackingSearch(lifted, least, most_steps=most_steps) for least in sorted(minima, reverse=True))
    return (
        any(search.is_feasible() for search in searches)
        or PackingSearch(problem, x, most_steps=most_steps).is_feasible()
    )


def without_maxima(problem: PackingProblem) -> PackingProblem:
    """Return the problem in which elastic replicas have no maximum: where that fits, so does the problem itself."""
    unbounded = (need if need.share is not None else replace(need, max_mib=UNBOUNDED) for need in problem.needs)
    return replace(problem, needs=tuple(unbounded))


def max_min_limit(problem: PackingProblem) -> int | None:
    """Return the largest x (MiB) for which `is_feasible`, or None if there is none; 0 if no need is elastic.

    It is no more than the largest maximum, nor than what a room has for one replica.
    """
    if not is_feasible(problem):
        return None
    elastic = [need for need in problem.needs if need.share is None]
    if not elastic:
        return 0
    minima = [need.min_mib for need in elastic]
    room = max((room.plannable_mib for room in problem.rooms), default=0) - min(need.context_mib for need in elastic)
    top = min(room, max(need.max_mib for need in elastic))
    return largest(lambda x: is_feasible(problem, x), min(minima), max(top, min(minima)))


def most_counted(problem: PackingProblem, x: int) -> int:
    """Return how many replicas of the largest elastic kind have a place at `x` MiB beside all others; 0 if none."""
    return PackingSearch(problem, x).most_counted()


def place(problem: PackingProblem, x: int) -> list[list[int]]:
    """Return for each room how many replicas of each need it takes at `x` MiB. It must fit, in any number of rooms.

    Rooms with a share replica hold as few replicas as possible (the fullest of them decides), then come first; counted
    replicas go to the other rooms, evenly by what these can take, and beside a share only when nothing else is left.
    """
    search = PackingSearch(problem, x)
    if search.shares:
        top = max(search.capacity) + sum(kind.need.count for kind in search.kinds)
        crowd = smallest(lambda crowd: PackingSearch(problem, x, crowd).is_feasible(), 1, top)
        search = PackingSearch(problem, x, crowd)
    patterns = search.walk()
    shared = [any(pattern.placed[: search.shares]) for pattern in patterns]
    apart = [0 if with_share else pattern.counted for with_share, pattern in zip(shared, patterns, strict=True)]
    beside = [pattern.counted if with_share else 0 for with_share, pattern in zip(shared, patterns, strict=True)]
    wanted = search.counted.need.count
    first = min(wanted, sum(apart))
    counted = map(int.__add__, apportion(apart, first), apportion(beside, wanted - first))
    numbers = [[*pattern.placed, number] for pattern, number in zip(patterns, counted, strict=True)]
    return _by_need(problem.needs, [*search.kinds, search.counted], numbers)


def apportion(capacities: Sequence[int], number: int) -> list[int]:
    """Split `number` over places in proportion to their capacities, none over its own: largest remainders, first first.

    `number` must not exceed the sum of the capacities.
    """
    whole = sum(capacities)
    if not number:
        return [0] * len(capacities)
    dealt = [capacity * number // whole for capacity in capacities]
    by_remainder = sorted(range(len(capacities)), key=lambda i: -(capacities[i] * number % whole))
    for i in by_remainder[: number - sum(dealt)]:
        dealt[i] += 1
    return dealt


def largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest whole number in [low, high] that `holds`, which must hold at `low` and never come back."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest whole number in [low, high] that `holds`, which must hold at `high` and never come back."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _by_need(needs: Sequence[Demand], kinds: Sequence[DemandGroup], numbers: list[list[int]]) -> list[list[int]]:
    """Split each room's number of a kind over the needs that it merged, in proportion to what these still miss."""
    missing = [need.count for need in needs]
    result = []
    for of_kinds in numbers:
        here = [0] * len(needs)
        for kind, number in zip(kinds, of_kinds, strict=True):
            for i, part in zip(kind.members, apportion([missing[i] for i in kind.members], number), strict=True):
                here[i] = part
                missing[i] -= part
        result.append(here)
    return result
