"""The exact solver: rooms and needs in, the largest least limit and a placement out. It knows no roles by name.

The question. Every *room* (device) has plannable memory and a most number of replicas. Every *need* (role) asks for a
number of replicas; one that asks for a share has a floor per room, an elastic one gets max(its minimum, x), the same
everywhere. What is the largest x for which all have a place?

The answer is a binary search on x, because a placement for x is one for every smaller x too. For one x, needs of equal
size are one *kind*. The elastic kind with the most replicas is *counted*: how many of it fit in a room is a division.
Only the other kinds are searched, by dynamic programming over the rooms with the number placed of each kind as state
and as value the counted replicas that were displaced. Nothing is rounded and nothing is guessed, so that the answer is
exact. One share replica and one elastic role, the usual workload, leave two states: the cost is that of a few sums over
the rooms. In general it is rooms x states x ways to fill one room, where states = product of (count + 1) over the kinds
that are not counted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpusched.units import FRACTION_ONE

__all__ = [
    "Need",
    "Problem",
    "Room",
    "deal",
    "fits",
    "largest",
    "largest_limit",
    "most_counted",
    "place",
    "rooms_taken",
    "smallest",
]

_UNBOUNDED: Final = 1 << 40


class Room(msgspec.Struct, frozen=True):
    """What one device has to give: plannable and total memory in MiB, and how many replicas it may take at most."""

    plannable_mib: int
    total_mib: int
    most: int = _UNBOUNDED


class Need(msgspec.Struct, frozen=True):
    """`count` replicas of at least `min_mib`. `share` (1/10 000 of the room's total) is None for an elastic need."""

    count: int
    min_mib: int
    share: int | None = None

    def floor_mib(self, total_mib: int) -> int:
        """Return the least limit in a room of `total_mib`: the share rounds up, so that the fraction is reached."""
        return max(self.min_mib, -(-total_mib * (self.share or 0) // FRACTION_ONE))


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Rooms, needs, what each replica takes beside its limit (MiB), and how many rooms may be used at most."""

    rooms: tuple[Room, ...]
    needs: tuple[Need, ...]
    context_mib: int
    most_rooms: int = _UNBOUNDED


class _Kind(NamedTuple):
    """Needs of one size: `members` are their indices. `share` is None for an elastic kind, of which `need` has x in."""

    need: Need
    members: tuple[int, ...]


class _Filling(NamedTuple):
    """One way to put replicas of the kinds that are searched into a room, and how many counted ones fit beside them."""

    placed: tuple[int, ...]
    counted: int


_Table = dict[tuple[tuple[int, ...], int], int]
"""(placed of each kind, rooms that hold any) in the rooms seen so far -> the least number of counted ones displaced."""


class _Trial:
    """One value of x: the kinds it makes, and the search for a placement of them."""

    def __init__(self, problem: Problem, x: int, crowd: int = _UNBOUNDED) -> None:
        """`crowd` bounds the replicas in every room that holds a share replica, that one included."""
        self.problem, self.crowd = problem, crowd
        kinds = _kinds(problem.needs, x)
        elastic = [kind for kind in kinds if kind.need.share is None]
        self.counted = max(elastic, key=lambda kind: kind.need.count, default=_Kind(Need(0, 1), ()))
        self.kinds = [kind for kind in kinds if kind is not self.counted]  # the share kinds are first
        self.shares = len(kinds) - len(elastic)
        self.goal = tuple(kind.need.count for kind in self.kinds)
        self.size = self.counted.need.min_mib + problem.context_mib
        self.capacity = [min(room.most, room.plannable_mib // self.size) for room in problem.rooms]
        self._fillings: dict[Room, list[_Filling]] = {}

    def fillings(self, room: Room) -> list[_Filling]:
        """Return every way to put at least one searched replica into `room`."""
        if room not in self._fillings:
            self._fillings[room] = list(self._fill(room))
        return self._fillings[room]

    def _fill(self, room: Room) -> Iterator[_Filling]:
        partial: list[tuple[tuple[int, ...], int, int]] = [((), room.plannable_mib, room.most)]
        for kind in self.kinds:
            size = kind.need.floor_mib(room.total_mib) + self.problem.context_mib
            partial = [
                ((*placed, k), rest - k * size, most - k)
                for placed, rest, most in partial
                for k in range(min(kind.need.count, rest // size, most) + 1)
            ]
        for placed, rest, most in partial:
            number = room.most - most
            left = min(most, self.crowd - number) if any(placed[: self.shares]) else most
            if number and left >= 0:
                yield _Filling(placed, min(left, rest // self.size))

    def windows(self) -> Iterator["_Window"]:
        """Return the searches whose union is the whole: one, or one per number of rooms that hold searched kinds."""
        rooms, most = len(self.capacity), self.problem.most_rooms
        if most >= rooms:
            yield _Window(self, range(rooms), rooms, None)
            return
        order = sorted(range(rooms), key=lambda i: -self.capacity[i])
        searched = sum(self.goal)
        for special in range(min(1, searched), min(most, searched) + 1):
            yield _Window(self, order, most - special, special)


class _Window:
    """A trial with its rooms in an order, of which the first `window` that hold only counted replicas are used.

    `special` is None if every room may be used. Otherwise exactly `special` rooms hold searched kinds, and the rooms
    come in the order of falling capacity: whichever rooms are special, the best others are the first others.
    """

    def __init__(self, trial: _Trial, order: Sequence[int], window: int, special: int | None) -> None:
        self.trial, self.order, self.window, self.special = trial, order, window, special
        self.step = 0 if special is None else 1
        self.end = special or 0
        self._capacity = [trial.capacity[i] for i in order] + [0] * (self.end + 1)
        self.most = sum(self._capacity[:window])

    def displaced(self, position: int, before: int) -> int:
        """Return how many counted replicas a room loses by being special, when `before` rooms before it are.

        A special room inside the window is replaced by the next one after it.
        """
        if position - before >= self.window:
            return 0
        return self._capacity[position] - self._capacity[self.window + before]

    def tables(self) -> Iterator[_Table]:
        """Yield the table of the last room, of the last two, and so on."""
        goal, step = self.trial.goal, self.step
        rooms = self.trial.problem.rooms
        table: _Table = {(tuple(0 for _ in goal), 0): 0}
        yield table
        for position in range(len(self.order) - 1, -1, -1):
            fillings = self.trial.fillings(rooms[self.order[position]])
            if fillings:
                grown = dict(table)
                for (placed, after), loss in table.items():
                    before = self.end - step - after
                    if before < 0:
                        continue
                    lost = loss + self.displaced(position, before)
                    for filling in fillings:
                        total = tuple(map(int.__add__, placed, filling.placed))
                        key = (total, after + step)
                        if lost - filling.counted < grown.get(key, _UNBOUNDED) and all(map(int.__le__, total, goal)):
                            grown[key] = lost - filling.counted
                table = grown
            yield table

    def fits(self) -> bool:
        """Return whether all kinds have a place."""
        slack = self.most - self.trial.counted.need.count
        if self.special is None and slack < 0:
            return False
        goal = (self.trial.goal, self.end)
        return any(table.get(goal, _UNBOUNDED) <= slack for table in self.tables())

    def most_counted(self) -> int | None:
        """Return how many counted replicas fit beside all others, or None if the others have no place."""
        *_, last = self.tables()
        loss = last.get((self.trial.goal, self.end))
        return None if loss is None else self.most - loss

    def walk(self) -> list[_Filling | None]:
        """Return each position's filling (None: only counted replicas). Call it only on a window that fits.

        Share replicas come as early as they can, one to a room where that is possible; other kinds are spread evenly.
        """
        tables = list(self.tables())[::-1]  # tables[i]: the rooms from position i on
        slack = self.most - self.trial.counted.need.count
        missing, before, chosen = self.trial.goal, 0, list[_Filling | None]()
        for position, i in enumerate(self.order):
            options: list[tuple[tuple[int, ...], int, _Filling | None]] = []
            for filling in (None, *self.trial.fillings(self.trial.problem.rooms[i])):
                rest, step, cost = missing, 0, 0
                if filling is not None:
                    rest = tuple(map(int.__sub__, missing, filling.placed))
                    step, cost = self.step, self.displaced(position, before) - filling.counted
                key = (rest, self.end - before - step)
                if cost + tables[position + 1].get(key, _UNBOUNDED) <= slack:
                    options.append((self._preference(position, missing, filling), cost, filling))
            _, cost, filling = min(options, key=lambda option: option[0])
            if filling is not None:
                missing = tuple(map(int.__sub__, missing, filling.placed))
                before += self.step
                slack -= cost
            chosen.append(filling)
        return chosen

    def _preference(self, position: int, missing: tuple[int, ...], filling: _Filling | None) -> tuple[int, ...]:
        placed = filling.placed if filling else tuple(0 for _ in missing)
        shares, left = self.trial.shares, len(self.order) - position
        first = sum(placed[:shares])
        uneven = (abs(k * left - rest) for k, rest in zip(placed[shares:], missing[shares:], strict=True))
        return (first or _UNBOUNDED, *uneven)


def fits(problem: Problem, x: int = 0) -> bool:
    """Return whether every replica has a place when no elastic one gets less than `x` MiB."""
    return _fits(_Trial(problem, x))


def _fits(trial: _Trial) -> bool:
    return any(window.fits() for window in trial.windows())


def largest_limit(problem: Problem) -> int | None:
    """Return the largest x (MiB) for which `fits`, or None if there is none; 0 if no need is elastic."""
    if not fits(problem):
        return None
    minima = [need.min_mib for need in problem.needs if need.share is None]
    if not minima:
        return 0
    top = max((room.plannable_mib for room in problem.rooms), default=0) - problem.context_mib
    return largest(lambda x: fits(problem, x), min(minima), max(top, min(minima)))


def most_counted(problem: Problem, x: int) -> int:
    """Return how many replicas of the largest elastic kind have a place at `x` MiB beside all others; 0 if none."""
    return max((window.most_counted() or 0 for window in _Trial(problem, x).windows()), default=0)


def rooms_taken(problem: Problem, x: int) -> frozenset[int]:
    """Return the indices of at most `problem.most_rooms` rooms that take every replica at `x` MiB. It must fit."""
    window = next(window for window in _Trial(problem, x).windows() if window.fits())
    walked = list(zip(window.order, window.walk(), strict=True))
    special = [i for i, filling in walked if filling is not None]
    plain = [i for i, filling in walked if filling is None]
    return frozenset(special) | frozenset(plain[: window.window])


def place(problem: Problem, x: int) -> list[list[int]]:
    """Return for each room how many replicas of each need it takes at `x` MiB. It must fit.

    Rooms with a share replica hold as few replicas as possible (the fullest of them decides), then come first; counted
    replicas go to the other rooms, evenly by what these can take, and beside a share only when nothing else is left.
    `problem.most_rooms` is not heeded: narrow the rooms with `rooms_taken` first.
    """
    problem = msgspec.structs.replace(problem, most_rooms=_UNBOUNDED)
    trial = _Trial(problem, x)
    if trial.shares:
        top = max(trial.capacity) + sum(trial.goal)
        trial = _Trial(problem, x, smallest(lambda crowd: _fits(_Trial(problem, x, crowd)), 1, top))
    (window,) = trial.windows()
    fillings = window.walk()
    shared = [filling is not None and any(filling.placed[: trial.shares]) for filling in fillings]
    room_for = [filling.counted if filling else free for filling, free in zip(fillings, trial.capacity, strict=True)]
    apart = [0 if with_share else number for with_share, number in zip(shared, room_for, strict=True)]
    beside = [number if with_share else 0 for with_share, number in zip(shared, room_for, strict=True)]
    wanted = trial.counted.need.count
    first = min(wanted, sum(apart))
    counted = map(int.__add__, deal(apart, first), deal(beside, wanted - first))
    nothing = tuple(0 for _ in trial.kinds)
    numbers = [
        [*(filling.placed if filling else nothing), number] for filling, number in zip(fillings, counted, strict=True)
    ]
    return _by_need(problem.needs, [*trial.kinds, trial.counted], numbers)


def deal(capacities: Sequence[int], number: int) -> list[int]:
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


def _kinds(needs: Sequence[Need], x: int) -> list[_Kind]:
    """Merge the needs that have one size at `x`, share kinds first."""
    merged: dict[tuple[int, int | None], list[int]] = {}
    for i, need in enumerate(needs):
        if need.count:
            least = max(need.min_mib, x) if need.share is None else need.min_mib
            merged.setdefault((least, need.share), []).append(i)
    kinds = [
        _Kind(Need(sum(needs[i].count for i in members), least, share), tuple(members))
        for (least, share), members in merged.items()
    ]
    return sorted(kinds, key=lambda kind: kind.need.share is None)


def _by_need(needs: Sequence[Need], kinds: Sequence[_Kind], numbers: list[list[int]]) -> list[list[int]]:
    """Split each room's number of a kind over the needs that it merged, in proportion to what these still miss."""
    missing = [need.count for need in needs]
    result = []
    for of_kinds in numbers:
        here = [0] * len(needs)
        for kind, number in zip(kinds, of_kinds, strict=True):
            for i, part in zip(kind.members, deal([missing[i] for i in kind.members], number), strict=True):
                here[i] = part
                missing[i] -= part
        result.append(here)
    return result
