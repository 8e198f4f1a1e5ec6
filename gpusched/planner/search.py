"""For one least limit: have all replicas a place, and which? Exact, by dynamic programming over the rooms.

The elastic kind with the most replicas is *counted*: how many of it fit in a room is a division. Only the other kinds
are *searched*. A state is how many of each searched kind have been placed, its value how many counted replicas that
has displaced. Nothing is rounded and nothing is guessed, so that the answer is exact.

A state is one whole number with a field for each kind, wide enough for a guard bit above twice the kind's count: one
addition places replicas, and one subtraction shows whether every field is within its count.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpusched.planner.problem import UNBOUNDED, Bin, Demand, DemandGroup, PackingProblem, SearchLimitExceeded, kinds_at

__all__ = ["BinPattern", "BinSelection", "FeasibilityCheck"]

_MOST_STEPS: Final = 6_000_000
"""One search takes no more than this many steps, about half a second; a plan is some twenty searches."""

_STEPS_PER_FILLING: Final = 10
"""The cost of finding one filling, in steps."""

_Table = dict[int, int]
"""State -> the least number of counted replicas that are displaced in the rooms seen so far."""


class BinPattern(NamedTuple):
    """One way to put searched replicas into a room: their numbers by kind, as a state, and the counted beside them."""

    placed: tuple[int, ...]
    state: int
    counted: int


class FeasibilityCheck:
    """One value of x: the kinds it makes, and what every room can take."""

    def __init__(self, problem: PackingProblem, x: int, crowd: int = UNBOUNDED) -> None:
        """`crowd` bounds the replicas in every room that holds a share replica, that one included."""
        self.problem, self.crowd = problem, crowd
        kinds = kinds_at(problem.needs, x)
        elastic = [kind for kind in kinds if kind.need.share is None]
        self.counted = max(elastic, key=lambda kind: kind.need.count, default=DemandGroup(Demand(0, 1), ()))
        self.kinds = [kind for kind in kinds if kind is not self.counted]  # the share kinds are first
        self.shares = len(kinds) - len(elastic)
        self.goal = tuple(kind.need.count for kind in self.kinds)
        self.size = self.counted.need.min_mib + problem.context_mib
        self.capacity = [
            number if (number := room.plannable_mib // self.size) < room.most else room.most for room in problem.rooms
        ]
        widths = [count.bit_length() + 1 for count in self.goal]
        self.shifts = [sum(widths[:i]) for i in range(len(widths) + 1)]
        self._fillings: dict[Bin, list[BinPattern]] = {}
        self._steps = 0

    def is_feasible(self) -> bool:
        """Return whether all replicas have a place."""
        return not self._is_short() and any(window.is_feasible() for window in self.windows())

    def _is_short(self) -> bool:
        """Return whether there is less memory than the replicas take, wherever they go."""
        taken = sum(kind.need.count * (kind.need.min_mib + self.problem.context_mib) for kind in self.kinds)
        there = sum(room.plannable_mib for room in self.problem.rooms if room.most)
        return taken + self.counted.need.count * self.size > there

    def spend(self, steps: int) -> None:
        """Count `steps` of the search. Raises TooManyWays when it takes too many."""
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise SearchLimitExceeded

    def fillings(self, room: Bin) -> list[BinPattern]:
        """Return every way to put at least one searched replica into `room`."""
        if room not in self._fillings:
            self._fillings[room] = list(self._fill(room))
        return self._fillings[room]

    def _fill(self, room: Bin) -> Iterator[BinPattern]:
        partial: list[tuple[tuple[int, ...], int, int, int]] = [((), 0, room.plannable_mib, room.most)]
        for kind, shift in zip(self.kinds, self.shifts, strict=False):
            size = kind.need.floor_mib(room.total_mib) + self.problem.context_mib
            most_here = min(kind.need.count, room.plannable_mib // size, room.most)
            self.spend(len(partial) * (most_here + 1) * _STEPS_PER_FILLING)
            partial = [
                ((*placed, k), state + (k << shift), rest - k * size, most - k)
                for placed, state, rest, most in partial
                for k in range(min(kind.need.count, rest // size, most) + 1)
            ]
        for placed, state, rest, most in partial:
            left = min(most, self.crowd - room.most + most) if any(placed[: self.shares]) else most
            if state and left >= 0:
                yield BinPattern(placed, state, min(left, rest // self.size))

    def windows(self) -> Iterator["BinSelection"]:
        """Return the searches whose union is the whole: one, or one per number of rooms that hold searched kinds."""
        rooms, most = len(self.capacity), self.problem.most_rooms
        if most >= rooms:
            yield BinSelection(self, range(rooms), rooms, None)
            return
        order = sorted(range(rooms), key=lambda i: -self.capacity[i])
        searched = sum(self.goal)
        for special in range(min(1, searched), min(most, searched) + 1):
            yield BinSelection(self, order, most - special, special)


class BinSelection:
    """A trial with its rooms in an order, of which the first `window` that hold only counted replicas are used.

    `special` is None if every room may be used. Otherwise exactly `special` rooms hold searched kinds, and the rooms
    come in the order of falling capacity: whichever rooms are special, the best others are the first others. The number
    of special rooms is then one more field of the state, the topmost.
    """

    def __init__(self, trial: FeasibilityCheck, order: Sequence[int], window: int, special: int | None) -> None:
        self.trial, self.order, self.window, self.special = trial, order, window, special
        goals = [*trial.goal, special or 0]
        self._top = trial.shifts[-1]
        self._one_more = 0 if special is None else 1 << self._top
        self._goal = sum(count << shift for count, shift in zip(goals, trial.shifts, strict=True))
        self._guards = sum(1 << (shift + count.bit_length()) for count, shift in zip(goals, trial.shifts, strict=True))
        self._capacity = [trial.capacity[i] for i in order] + [0] * (1 + (special or 0))
        self._most = sum(self._capacity[:window])
        self._slack = self._most - trial.counted.need.count

    def is_feasible(self) -> bool:
        """Return whether all replicas have a place."""
        if self.special is None and self._slack < 0:
            return False
        return any(table.get(self._goal, UNBOUNDED) <= self._slack for table in self._tables(self._bound()))

    def most_counted(self) -> int | None:
        """Return how many counted replicas fit beside all others, or None if the others have no place."""
        *_, last = self._tables(UNBOUNDED)
        return self._most - last[self._goal] if self._goal in last else None

    def walk(self) -> list[BinPattern | None]:
        """Return each position's filling (None: only counted replicas). Call it only on a window that fits.

        Share replicas come as early as they can, one to a room where that is possible; other kinds are spread evenly.
        """
        tables = list(self._tables(self._bound()))[::-1]  # tables[i]: the rooms from position i on
        missing, slack, chosen = self._goal, self._slack, list[BinPattern | None]()
        for position, i in enumerate(self.order):
            options: list[tuple[tuple[int, ...], int, int, BinPattern | None]] = []
            for filling in (None, *self.trial.fillings(self.trial.problem.rooms[i])):
                taken = cost = 0
                if filling is not None:
                    taken = filling.state + self._one_more
                    cost = self._displaced(position, self._special_before(missing)) - filling.counted
                    if ((missing | self._guards) - taken) & self._guards != self._guards:
                        continue
                if cost + tables[position + 1].get(missing - taken, UNBOUNDED) <= slack:
                    options.append((self._preference(position, missing, filling), taken, cost, filling))
            _, taken, cost, filling = min(options, key=lambda option: option[0])
            missing -= taken
            slack -= cost
            chosen.append(filling)
        return chosen

    def _bound(self) -> int:
        """Return the loss above which a state is hopeless: where no room is closed, losses only grow."""
        return self._slack if self.special is None else UNBOUNDED

    def _special_before(self, missing: int) -> int:
        return (self.special or 0) - (missing >> self._top)

    def _displaced(self, position: int, before: int) -> int:
        """Return how many counted replicas a room loses by being special, when `before` rooms before it are.

        A special room inside the window is replaced by the next one after it.
        """
        if position - before >= self.window:
            return 0
        return self._capacity[position] - self._capacity[self.window + before]

    def _tables(self, bound: int) -> Iterator[_Table]:
        """Yield the table of no room, of the last room, of the last two ...; losses over `bound` are left out."""
        guards, guarded = self._guards, self._goal | self._guards
        table: _Table = {0: 0}
        yield table
        for position in range(len(self.order) - 1, -1, -1):
            fillings = self.trial.fillings(self.trial.problem.rooms[self.order[position]])
            if fillings:
                self.trial.spend(len(table) * len(fillings))
                grown = dict(table)
                for state, loss in table.items():
                    started = state + self._one_more
                    if (guarded - started) & guards != guards:
                        continue
                    lost = loss + self._displaced(position, self._special_before(started))
                    for _, placed, counted in fillings:
                        after = started + placed
                        less = lost - counted
                        if (
                            less <= bound
                            and less < grown.get(after, UNBOUNDED)
                            and (guarded - after) & guards == guards
                        ):
                            grown[after] = less
                table = grown
            yield table

    def _preference(self, position: int, missing: int, filling: BinPattern | None) -> tuple[int, ...]:
        goal, shifts, shares = self.trial.goal, self.trial.shifts, self.trial.shares
        rest = [missing >> shift & ((1 << count.bit_length()) - 1) for count, shift in zip(goal, shifts, strict=False)]
        placed = filling.placed if filling else tuple(0 for _ in goal)
        left = len(self.order) - position
        uneven = (abs(k * left - wanted) for k, wanted in zip(placed[shares:], rest[shares:], strict=True))
        return (sum(placed[:shares]) or UNBOUNDED, *uneven)
