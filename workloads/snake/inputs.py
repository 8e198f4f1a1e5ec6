"""What a network sees of a board: an observation in bytes, and layers that read it. They name no backend.

So who plays can observe, and who learns can read that: where moves lead is found once for each board. Knows the rules;
knows nothing about networks and how they are trained.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import keras
import numpy as np
from keras import layers, ops
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, WALL
from workloads.snake.symmetry import Layout

__all__ = ["Around", "AroundAndPaths", "OnePlane", "Paths", "SeenFromHead", "Whole"]

_AROUND: Final = SIDE + 1
_MIDDLE: Final = _AROUND // 2
_TIP_OF_TAIL: Final = 0.5
_LONG_TAIL: Final = 40.0
_MANY: Final = 50.0
_A_FEW: Final = 25.0
_REACHED: Final = 0x7F
_TIP: Final = 0x80


@keras.saving.register_keras_serializable("gpusched")
class Whole(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> uint8 [n, 100]: the frame itself."""

    layout = Layout(SIDE)

    def call(self, frames: Any) -> Any:
        """Observe `frames`."""
        return ops.reshape(frames, (-1, CELLS))


@keras.saving.register_keras_serializable("gpusched")
class OnePlane(layers.Layer):  # type: ignore[misc]
    """What Whole observes, uint8 [n, 100] -> float [n, 10, 10, 1].

    The tail is above 0 by how long it stays; head and fruit are apart from it.
    """

    def call(self, frames: Any) -> Any:
        """Read `frames`."""
        frames = ops.reshape(ops.cast(frames, self.compute_dtype), (-1, SIDE, SIDE, 1))
        tail = ops.where(frames > 0, _TIP_OF_TAIL + frames / _LONG_TAIL, 0.0)
        return ops.where(ops.equal(frames, HEAD), 3.0, ops.where(ops.equal(frames, FRUIT), -3.0, tail))


@keras.saving.register_keras_serializable("gpusched")
class Around(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> uint8 [n, 121]: the board around the head, row by row.

    The torus of 11 x 11 is rolled until the head is in the middle: each cell is in it exactly once, and what is left,
    right, above and below of the head is always at the same place.
    """

    layout = Layout(_AROUND)

    def call(self, frames: Any) -> Any:
        """Observe `frames`."""
        return _around(_cells(frames))


@keras.saving.register_keras_serializable("gpusched")
class AroundAndPaths(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] and hunger uint8 [n] -> uint8 [n, 127]: as Around; length, hunger; and of each move 1.

    That one is how many cells the move leads to, 0 if it is deadly, and 128 more if the tip of the tail can be reached
    from there: path knowledge made by hand, though the frame alone decides it.
    """

    layout = Layout(_AROUND, counts=2, moves=len(MOVES))

    def call(self, frames: Any, hunger: Any) -> Any:
        """Observe `frames` and `hunger`."""
        cells = _cells(frames)
        length = ops.max(ops.where(cells < HEAD, cells, 0), axis=1) + 1
        counts = ops.stack([ops.cast(length, "uint8"), hunger], axis=1)
        return ops.concatenate([_around(cells), counts, ops.cast(_moves(cells), "uint8")], axis=1)


@keras.saving.register_keras_serializable("gpusched")
class SeenFromHead(layers.Layer):  # type: ignore[misc]
    """What Around observes, uint8 [n, 121] -> float [n, 11 * 11 * 3]: fruit, wall and tail."""

    def call(self, around: Any) -> Any:
        """Read `around`."""
        fruit, tail = _fruit_and_tail(around, self.compute_dtype)
        wall = ops.cast(ops.equal(around, WALL), self.compute_dtype)
        return ops.reshape(ops.stack([fruit, wall, tail], axis=-1), (-1, 3 * _AROUND**2))


@keras.saving.register_keras_serializable("gpusched")
class Paths(layers.Layer):  # type: ignore[misc]
    """What AroundAndPaths observes, uint8 [n, 127] -> float [n, 284].

    Fruit and tail as SeenFromHead has them, the row and the column of the wall, the length, the hunger, and for each
    of the four moves: it is deadly; how many cells it leads to; they are as many as the snake is long; the tip of the
    tail can be reached from there.
    """

    def call(self, observed: Any) -> Any:
        """Read `observed`."""
        dtype = self.compute_dtype
        around, counts, moves = (observed[:, part] for part in AroundAndPaths.layout.parts)
        places = ops.reshape(around, (-1, _AROUND, _AROUND))
        walls = ops.equal(ops.concatenate([places[:, :, _MIDDLE], places[:, _MIDDLE, :]], axis=1), WALL)
        moves = ops.cast(moves, "int32")
        reached, counts = ops.bitwise_and(moves, _REACHED), ops.cast(counts, dtype)
        enough = (reached > 0) & (ops.cast(reached, dtype) >= counts[:, :1])
        facts = [ops.equal(reached, 0), ops.cast(reached, dtype) / _MANY, enough, moves >= _TIP]
        many = ops.relu(counts - _MANY) / _A_FEW
        parts = [*_fruit_and_tail(around, dtype), walls, counts / _MANY, many, *facts]
        return ops.concatenate([ops.cast(part, dtype) for part in parts], axis=1)


def _fruit_and_tail(around: Any, dtype: str) -> tuple[Any, Any]:
    tail = ops.where((around > 0) & (around < WALL), _TIP_OF_TAIL + ops.cast(around, dtype) / _LONG_TAIL, 0.0)
    return ops.cast(ops.equal(around, FRUIT), dtype), tail


def _cells(frames: Any) -> Any:
    return ops.cast(ops.reshape(frames, (-1, CELLS)), "int32")


def _around(cells: Any) -> Any:
    """Return what is at each place around the head [n, 121]; its number is the largest but the fruit's."""
    head = ops.argmax(ops.where(ops.equal(cells, FRUIT), 0, cells), axis=1)
    torus = ops.pad(cells, ((0, 0), (0, 1)), constant_values=WALL)
    return ops.cast(ops.take_along_axis(torus, ops.take(_CELL_AT, head, axis=0), axis=1), "uint8")


def _moves(cells: Any) -> Any:
    """Return what AroundAndPaths has of each move, int32 [n, 4].

    A board is four numbers of 30 bits, three rows in each; all cells that can be reached grow by one step at a time,
    for all boards and moves at once, until none does.
    """
    head = _bits(ops.equal(cells, HEAD))
    free = _bits(ops.equal(cells, 0) | ops.equal(cells, FRUIT))
    last, last_two = _bits(ops.equal(cells, 1)), _bits(ops.equal(cells, 1) | ops.equal(cells, 2))
    entered = [ops.bitwise_or(*pair) for pair in zip(free, last, strict=True)]  # the tail's last cell moves away
    ways = [_up(head), _right(head), _down(head), _left(head)]
    start = [
        ops.bitwise_and(ops.stack(words, axis=1), open_[:, None]) for *words, open_ in zip(*ways, entered, strict=True)
    ]
    reached = _filled(start, [ops.bitwise_or(one, cell[:, None]) for one, cell in zip(start, free, strict=True)])
    beside = [ops.bitwise_and(one, tip[:, None]) for one, tip in zip(_grown(reached), last_two, strict=True)]
    size = sum(_count(one) for one in reached)
    return size + ops.where(ops.equal(_any_of(beside), 0), 0, _TIP)


Bits = Sequence[Any]
"""A board as int32 numbers, three rows of ten bits in each but the last."""

_ROWS: Final = 3
_WORDS: Final = -(-SIDE // _ROWS)
_ALL: Final = (1 << _ROWS * SIDE) - 1
_ROW: Final = (1 << SIDE) - 1
_NOT_LAST_ROW: Final = _ALL >> SIDE
_FIRST_COLUMN: Final = sum(1 << row * SIDE for row in range(_ROWS))
_TO_LAST_ROW: Final = (_ROWS - 1) * SIDE
_STEPS_AT_ONCE: Final = 2


def _bits(marked: Any) -> Bits:
    marked = ops.cast(marked, "int32")
    size = _ROWS * SIDE
    parts = [marked[:, word * size : (word + 1) * size] for word in range(_WORDS)]
    return [ops.sum(ops.multiply(part, 1 << np.arange(part.shape[1], dtype=np.int32)), axis=1) for part in parts]


def _filled(start: Bits, free: Bits) -> Bits:
    """Return all bits of `free` that can be reached from `start`."""

    def grow(*state: Any) -> tuple[Any, ...]:
        before = after = list(state[:-1])
        for _ in range(_STEPS_AT_ONCE):
            more = [ops.bitwise_and(one, open_) for one, open_ in zip(_grown(after), free, strict=True)]
            after = [ops.bitwise_or(*pair) for pair in zip(after, more, strict=True)]
        changed = _any_of([ops.bitwise_xor(*pair) for pair in zip(before, after, strict=True)])
        return *after, ops.any(ops.not_equal(changed, 0))

    begun = ops.any(ops.not_equal(_any_of(start), 0))
    reached: Bits = ops.while_loop(lambda *state: state[-1], grow, (*start, begun))[:-1]
    return reached


def _grown(bits: Bits) -> Bits:
    """Return the neighbours of all bits that are set."""
    ways = zip(_up(bits), _right(bits), _down(bits), _left(bits), strict=True)
    return [_any_of(words) for words in ways]


def _up(bits: Bits) -> Bits:
    below = [ops.left_shift(ops.bitwise_and(one, _ROW), _TO_LAST_ROW) for one in bits[1:]]
    within = [ops.right_shift(one, SIDE) for one in bits]
    return [*(ops.bitwise_or(*pair) for pair in zip(within[:-1], below, strict=True)), within[-1]]


def _down(bits: Bits) -> Bits:
    above = [ops.right_shift(one, _TO_LAST_ROW) for one in bits[:-1]]
    within = [ops.left_shift(ops.bitwise_and(one, _NOT_LAST_ROW), SIDE) for one in bits]
    return [within[0], *(ops.bitwise_or(*pair) for pair in zip(within[1:], above, strict=True))]


def _right(bits: Bits) -> Bits:
    return [ops.bitwise_and(ops.left_shift(one, 1), _ALL & ~_FIRST_COLUMN) for one in bits]


def _left(bits: Bits) -> Bits:
    return [ops.right_shift(ops.bitwise_and(one, _ALL & ~_FIRST_COLUMN), 1) for one in bits]


def _any_of(words: Bits) -> Any:
    return reduce(ops.bitwise_or, words)


def _count(word: Any) -> Any:
    """Return how many bits are set (Warren, Hacker's Delight, 5-1)."""
    pairs = word - ops.bitwise_and(ops.right_shift(word, 1), 0x55555555)
    fours = ops.bitwise_and(pairs, 0x33333333) + ops.bitwise_and(ops.right_shift(pairs, 2), 0x33333333)
    eights = ops.bitwise_and(fours + ops.right_shift(fours, 4), 0x0F0F0F0F)
    sixteens = eights + ops.right_shift(eights, 8)
    return ops.bitwise_and(sixteens + ops.right_shift(sixteens, 16), 0x3F)


def _cell_at() -> NDArray[np.int32]:
    """Return by the head's cell [100, 121] the cell at each place around it, CELLS where there is wall."""
    away = np.arange(_AROUND) - _MIDDLE
    row, column = np.divmod(np.arange(CELLS), SIDE)
    rows, columns = (row[:, None] + away) % _AROUND, (column[:, None] + away) % _AROUND
    wall = (rows == SIDE)[:, :, None] | (columns == SIDE)[:, None, :]
    cells = np.where(wall, CELLS, rows[:, :, None] * SIDE + columns[:, None, :])
    return cells.reshape(CELLS, -1).astype(np.int32)


_CELL_AT: Final = _cell_at()
