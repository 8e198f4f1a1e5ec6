"""How the numbers of a genome are spread over a network's weights: the fewer there are, the sooner a search finds some.

The network `small` sees the board from the snake's head, and two things are the same for all genomes. Turned and
mirrored boards are played alike: its hidden units are 16 groups of eight, one for each symmetry, and weights that a
symmetry brings onto each other are one number. And cells in one direction, at about one distance, have one weight: so
8 directions x 3 distances and the head's own cell instead of 121 cells. 3,344 numbers make all weights of the policy.

Numbers are only copied here, so the same numbers give the same weights anywhere, bit for bit.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import MOVES, SIDE
from workloads.snake.settings import Network
from workloads.snake.symmetry import SYMMETRIES, turned

__all__ = ["Numbers", "Spread", "spread_over"]

Numbers = NDArray[np.float32]

Permutations = NDArray[np.intp]
"""[8, n]: where each symmetry brings each of n things."""

_SEEN: Final = SIDE + 1
_PLANES: Final = 3
_GROUPS: Final = 16
_FAR: Final = 3
_CELLS_THAT_COUNT: Final = 40.0
"""Of the 363 numbers that the first layer sees, so many at the most are not 0 while the snake is short."""


class Tied(msgspec.Struct, frozen=True, eq=False):
    """The weight `name`: `which` [its shape] says of each of its numbers which one of `size` numbers it is."""

    name: str
    which: NDArray[np.intp]
    size: int
    scale: float
    bias: bool


class Spread:
    """Which of a genome's numbers each weight of a network is. A weight that has none stays 0."""

    def __init__(self, tied: list[Tied], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._tied, self._shapes = tied, shapes
        self.size = sum(one.size for one in tied)
        self.first: Numbers = np.concatenate([np.full(one.size, 0.0 if one.bias else one.scale) for one in tied])
        self.first = self.first.astype(np.float32)
        """[size]: how far from 0 a genome's numbers are at first; biases begin at 0."""
        self.later: Numbers = np.concatenate([np.full(one.size, one.scale) for one in tied]).astype(np.float32)
        """[size]: how far a mutation of strength 1 moves them."""

    def weights(self, numbers: Numbers) -> dict[str, Numbers]:
        """Return the network's weights by name for a genome's numbers [size]."""
        arrays = {name: np.zeros(shape, np.float32) for name, shape in self._shapes.items()}
        start = 0
        for one in self._tied:
            arrays[one.name] = numbers[start : start + one.size][one.which]
            start += one.size
        return arrays


def spread_over(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> Spread:
    """Return how to make `network`, whose weights have these shapes by name: of `original` each is its own number.

    For `small` those may be left out that are not wanted and stay 0.
    """
    if network == "small":
        return Spread(_of_small(), shapes)
    policy = {name: shape for name, shape in shapes.items() if not name.startswith("value/")}
    return Spread([_free(name, shape) for name, shape in policy.items()], shapes)


def _free(name: str, shape: tuple[int, ...]) -> Tied:
    size, bias = int(np.prod(shape)), len(shape) == 1
    scale = _BIAS if bias else float(np.sqrt(2 / np.prod(shape[:-1])))
    return Tied(name, np.arange(size).reshape(shape), size, scale, bias)


def _of_small() -> list[Tied]:
    regions = _regions()
    cells = _of_cells()
    inputs = (regions[:, None] * _PLANES + np.arange(_PLANES)).ravel()
    where = (cells[:, :, None] * _PLANES + np.arange(_PLANES)).reshape(SYMMETRIES, -1)
    region_goes = np.zeros((SYMMETRIES, int(inputs.max()) + 1), np.intp)
    for symmetry in range(SYMMETRIES):
        region_goes[symmetry, inputs] = inputs[where[symmetry]]
    hidden, one = _of_hidden(cells), np.zeros((SYMMETRIES, 1), np.intp)
    first = _tied("dense_1/kernel", region_goes, hidden, float(np.sqrt(2 / _CELLS_THAT_COUNT)))
    scale = float(np.sqrt(2 / hidden.shape[1]))
    return [
        msgspec.structs.replace(first, which=first.which[inputs]),
        _tied_bias("dense_1/bias", one, hidden),
        _tied("dense_2/kernel", hidden, hidden, scale),
        _tied_bias("dense_2/bias", one, hidden),
        _tied("policy/kernel", hidden, _of_actions(), scale),
    ]


_BIAS: Final = 0.1


def _tied(name: str, rows: Permutations, columns: Permutations, scale: float) -> Tied:
    """Return a weight [rows, columns] of which those are one number that a symmetry brings onto each other."""
    places = rows[:, :, None] * columns.shape[1] + columns[:, None, :]
    numbers, which = np.unique(places.min(axis=0), return_inverse=True)
    return Tied(name, which.reshape(rows.shape[1], columns.shape[1]), len(numbers), scale, bias=False)


def _tied_bias(name: str, one: Permutations, columns: Permutations) -> Tied:
    tied = _tied(name, one, columns, _BIAS)
    return msgspec.structs.replace(tied, which=tied.which[0], bias=True)


def _regions() -> NDArray[np.intp]:
    """[121]: the region of each cell that is seen, by direction and distance from the head in the middle."""
    down, right = np.divmod(np.arange(_SEEN**2), _SEEN)
    down, right = down - _SEEN // 2, right - _SEEN // 2
    distance = np.minimum(np.maximum(np.abs(down), np.abs(right)), _FAR)
    direction = (np.sign(down) + 1) * 3 + np.sign(right) + 1
    regions: NDArray[np.intp] = np.unique(direction * (_FAR + 1) + distance, return_inverse=True)[1]
    return regions


def _of_cells() -> Permutations:
    cells = np.arange(_SEEN**2, dtype=np.uint8).reshape(1, _SEEN, _SEEN)
    came_from = [turned(cells, np.zeros(1, np.intp), symmetry)[0].ravel() for symmetry in range(SYMMETRIES)]
    goes: Permutations = np.argsort(np.stack(came_from), axis=1)
    return goes


def _of_actions() -> Permutations:
    actions = np.arange(len(MOVES))
    boards = np.zeros((len(MOVES), 1, 1), np.uint8)
    return np.stack([turned(boards, actions, symmetry)[1] for symmetry in range(SYMMETRIES)])


def _of_hidden(cells: Permutations) -> Permutations:
    """[8, 128]: a symmetry brings the unit of another one to that of both, one after the other, in the same group."""
    numbers = {tuple(goes): symmetry for symmetry, goes in enumerate(cells.tolist())}
    both = np.array([[numbers[tuple(later[first].tolist())] for first in cells] for later in cells])
    units = np.arange(_GROUPS)[:, None] * SYMMETRIES + both[:, None, :]
    goes: Permutations = units.reshape(SYMMETRIES, -1)
    return goes
