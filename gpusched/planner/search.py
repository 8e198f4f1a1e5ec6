"""For one least limit: have all replicas a place, and which? Exact, by dynamic programming over the rooms.

The elastic kind with the most replicas is *counted*: how many of it fit in a room is a division. Only the other kinds
are *searched*. A state is how many of each searched kind have been placed, its value how many counted replicas that
has displaced. Nothing is rounded and nothing is guessed, so that the answer is exact.

Where not all rooms may be used, they come in the order of falling capacity: whichever are *special*, which means that
they hold searched kinds, the best others are the first others. The number of special rooms is one more field, the top.

A state is one whole number with a field for each kind, wide enough for a guard bit above twice the kind's count: one
addition places replicas, and one subtraction shows whether every field is within its count.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpusched.planner.problem import UNBOUNDED, Bin, Demand, DemandGroup, PackingProblem, SearchLimitExceeded, kinds_at

__all__ = ["MOST_STEPS", "BinPattern", "PackingSearch"]

MOST_STEPS: Final = 6_000_000
"""One search takes no more than this many steps, about half a second; a plan is some twenty searches."""

_STEPS_PER_FILLING: Final = 10
"""The cost of finding one filling, in steps."""

_Table = dict[int, int]
"""State -> the least number of counted replicas that are displaced in the rooms seen so far."""


class BinPattern(NamedTuple):
    """One way to use a room: the numbers of searched kinds, these as a state, and the counted replicas that fit."""

    placed: tuple[int, ...]
    state: int
    counted: int


class PackingSearch:
    """One value of x: the kinds it makes, what every room can take, and the ways to use all rooms."""

    def __init__(self, problem: PackingProblem, x: int, crowd: int = UNBOUNDED, most_steps: int = MOST_STEPS) -> None:
        """`crowd` bounds the replicas in every room that holds a share replica, that one included."""
        self.problem, self.crowd = problem, crowd
        kinds = kinds_at(problem.needs, x)
        elastic = [kind for kind in kinds if kind.need.share is None]
        self.counted = max(elastic, key=lambda kind: kind.need.count, default=DemandGroup(Demand(0, 1), ()))
        self.kinds = [kind for kind in kinds if kind is not self.counted]  # the share kinds are first
        self.shares = len(kinds) - len(elastic)
        self.size = self.counted.need.least_mib
        self.capacity = [min(room.plannable_mib // self.size, room.most) for room in problem.rooms]
        self._slack = sum(self.capacity) - self.counted.need.count
        self._order = list(range(len(problem.rooms)))
        bounded = problem.most_rooms < len(problem.rooms)
        if bounded:
            self._order.sort(key=lambda i: -self.capacity[i])
        counts = [kind.need.count for kind in self.kinds]
        counts.append(min(problem.most_rooms, sum(counts)) if bounded else 0)
        widths = [count.bit_length() + 1 for count in counts]
        self._shifts = [sum(widths[:i]) for i in range(len(widths))]
        self._top = self._shifts[-1]
        self._special = 1 << self._top if bounded else 0
        everything = sum(count << shift for count, shift in zip(counts, self._shifts[:-1], strict=False))
        self._goals = [everything + special * self._special for special in range(counts[-1] + 1)]
        self._guards = sum(1 << (shift + width - 1) for shift, width in zip(self._shifts, widths, strict=True))
        self._fillings: dict[Bin, list[BinPattern]] = {}
        self._steps, self._most_steps = 0, most_steps

    def is_feasible(self) -> bool:
        """Return whether all have a place. Rooms before those of a table need no search if all of them may be used."""
        if self._slack < 0 or self._is_short():
            return False
        return any(
            table.get(goal, UNBOUNDED) <= self._slack and before + special <= self.problem.most_rooms
            for before, table in zip(range(len(self._order), -1, -1), self._tables(self._slack), strict=True)
            for special, goal in enumerate(self._goals)
        )

    def most_counted(self) -> int:
        """Return how many counted replicas fit beside all others; 0 if the others have no place."""
        *_, last = self._tables(UNBOUNDED)
        return max(0, sum(self.capacity) - min(last.get(goal, UNBOUNDED) for goal in self._goals))

    def walk(self) -> list[BinPattern]:
        """Return the pattern of each room. Call it only where all fits.

        Share replicas come as early as they can, one to a room where that is possible; other kinds are spread evenly.
        """
        tables = list(self._tables(self._slack))[::-1]  # tables[i]: the rooms from position i on
        missing = next(goal for goal in self._goals if tables[0].get(goal, UNBOUNDED) <= self._slack)
        slack, chosen = self._slack, dict[int, BinPattern]()
        for position, i in enumerate(self._order):
            options = [
                pattern
                for pattern in (self._plain(position, missing), *self._room_fillings(i))
                if tables[position + 1].get(missing - pattern.state, UNBOUNDED)
                <= slack - self.capacity[i] + pattern.counted
            ]
            chosen[i] = min(options, key=lambda pattern: self._preference(position, missing, pattern))
            missing -= chosen[i].state
            slack -= self.capacity[i] - chosen[i].counted
        return [chosen[i] for i in range(len(chosen))]

    def _is_short(self) -> bool:
        """Return whether there is less memory than the replicas take, wherever they go."""
        taken = sum(kind.need.count * kind.need.least_mib for kind in self.kinds)
        there = sum(room.plannable_mib for room in self.problem.rooms if room.most)
        return taken + self.counted.need.count * self.size > there

    def _spend(self, steps: int) -> None:
        """Count `steps` of the search. Raises SearchLimitExceeded when it takes too many."""
        self._steps += steps
        if self._steps > self._most_steps:
            raise SearchLimitExceeded

    def _plain(self, position: int, state: int) -> BinPattern:
        """Return the pattern of a room without searched kinds. It may be one room too many."""
        used = position + (state >> self._top) < self.problem.most_rooms
        return BinPattern((0,) * len(self.kinds), 0, self.capacity[self._order[position]] if used else 0)

    def _room_fillings(self, i: int) -> list[BinPattern]:
        """Return every way to put at least one searched replica into a room."""
        room = self.problem.rooms[i]
        if room not in self._fillings:
            self._fillings[room] = list(self._fill(room))
        return self._fillings[room]

    def _fill(self, room: Bin) -> Iterator[BinPattern]:
        partial: list[tuple[tuple[int, ...], int, int, int]] = [((), 0, room.plannable_mib, room.most)]
        for kind, shift in zip(self.kinds, self._shifts, strict=False):
            size = kind.need.floor_mib(room.total_mib) + kind.need.context_mib
            most_here = min(kind.need.count, room.plannable_mib // size, room.most)
            self._spend(len(partial) * (most_here + 1) * _STEPS_PER_FILLING)
            partial = [
                ((*placed, k), state + (k << shift), rest - k * size, most - k)
                for placed, state, rest, most in partial
                for k in range(min(kind.need.count, rest // size, most) + 1)
            ]
        for placed, state, rest, most in partial:
            left = min(most, self.crowd - room.most + most) if any(placed[: self.shares]) else most
            if state and left >= 0:
                yield BinPattern(placed, state + self._special, min(left, rest // self.size))

    def _tables(self, bound: int) -> Iterator[_Table]:
        """Yield the table of no room, of the last room, of the last two ...; losses over `bound` are left out."""
        guards, guarded, top = self._guards, self._goals[-1] | self._guards, self._top
        table: _Table = {0: 0}
        yield table
        # A plain room is used where all rooms before it and the special ones after it are fewer than may be used.
        for position in range(len(self._order) - 1, -1, -1):
            fillings, capacity = self._room_fillings(self._order[position]), self.capacity[self._order[position]]
            self._spend(len(table) * len(fillings))
            free = self.problem.most_rooms - position
            grown = {
                state: less
                for state, loss in table.items()
                if (less := loss if state >> top < free else loss + capacity) <= bound
            }
            for state, loss in table.items():
                for _, placed, counted in fillings:
                    after, less = state + placed, loss + capacity - counted
                    if less <= bound and less < grown.get(after, UNBOUNDED) and (guarded - after) & guards == guards:
                        grown[after] = less
            table = grown
            yield table

    def _preference(self, position: int, missing: int, pattern: BinPattern) -> tuple[int, ...]:
        left, shares = len(self._order) - position, self.shares
        rest = [
            missing >> shift & ((1 << kind.need.count.bit_length()) - 1)
            for kind, shift in zip(self.kinds, self._shifts, strict=False)
        ]
        uneven = (abs(k * left - wanted) for k, wanted in zip(pattern.placed[shares:], rest[shares:], strict=True))
        return (sum(pattern.placed[:shares]) or UNBOUNDED, *uneven)
