"""What a network sees of a board, as Keras layers that name no backend: the frame around the head, and paths.

Knows the rules; knows nothing about networks and how they are trained.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import keras
import numpy as np
from keras import layers, ops
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, SIDE

__all__ = ["OnePlane", "Paths", "SeenFromHead"]

_SEEN: Final = SIDE + 1
_MIDDLE: Final = _SEEN // 2
_TIP_OF_TAIL: Final = 0.5
_LONG_TAIL: Final = 40.0
_MANY: Final = 50.0
_A_FEW: Final = 25.0


@keras.saving.register_keras_serializable("gpusched")
class OnePlane(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> float [n, 10, 10, 1]: the tail above 0 by how long it stays, head and fruit apart."""

    def call(self, frames: Any) -> Any:
        """Decode `frames`."""
        frames = ops.expand_dims(ops.cast(frames, self.compute_dtype), -1)
        tail = ops.where(frames > 0, _TIP_OF_TAIL + frames / _LONG_TAIL, 0.0)
        return ops.where(ops.equal(frames, HEAD), 3.0, ops.where(ops.equal(frames, FRUIT), -3.0, tail))


@keras.saving.register_keras_serializable("gpusched")
class SeenFromHead(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> float [n, 11 * 11 * 3]: fruit, wall and tail, with the head always in the middle.

    The board with one line of wall is a torus of 11 x 11: rolled until the head is in the middle, each cell is in
    it exactly once, and what is left, right, above and below of the head is always at the same place.
    """

    def call(self, frames: Any) -> Any:
        """Decode `frames`."""
        cells = _cells(frames)
        head = _head(cells)
        fruit, tail = _around(cells, head, self.compute_dtype)
        wall = ops.take(ops.cast(_WALLS, self.compute_dtype), head, axis=0)
        return ops.reshape(ops.stack([fruit, wall, tail], axis=-1), (-1, _SEEN**2 * 3))


@keras.saving.register_keras_serializable("gpusched")
class Paths(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] and hunger uint8 [n] -> float [n, 284]: the frame around the head, and where moves lead.

    Fruit and tail as SeenFromHead has them, the row and the column of the wall, the length, the hunger, and for each
    of the four moves: it is deadly; how many cells it leads to; they are as many as the snake is long; the tip of the
    tail can be reached from there. That last one is path knowledge made by hand, though the frame alone decides it.
    """

    def call(self, frames: Any, hunger: Any) -> Any:
        """Decode `frames` and `hunger`."""
        cells = _cells(frames)
        head = _head(cells)
        length = ops.max(ops.where(cells < HEAD, cells, 0), axis=1) + 1
        walls = ops.take(ops.cast(_LINES, self.compute_dtype), head, axis=0)
        counts = ops.cast(ops.stack([length, ops.cast(hunger, "int32")], axis=1), self.compute_dtype)
        many = ops.relu(counts - _MANY) / _A_FEW
        parts = [*_around(cells, head, self.compute_dtype), walls, counts / _MANY, many]
        return ops.concatenate([*parts, ops.cast(_moves(cells, length), self.compute_dtype)], axis=1)


def _cells(frames: Any) -> Any:
    return ops.cast(ops.reshape(frames, (-1, CELLS)), "int32")


def _head(cells: Any) -> Any:
    """Return the head's cell [n]: its number is the largest but the fruit's."""
    return ops.argmax(ops.where(ops.equal(cells, FRUIT), 0, cells), axis=1)


def _around(cells: Any, head: Any, dtype: str) -> tuple[Any, Any]:
    """Return the fruit and the tail [n, 121] as planes with the head in the middle."""
    seen = ops.take_along_axis(ops.pad(cells, ((0, 0), (0, 1))), ops.take(_AROUND, head, axis=0), axis=1)
    tail = ops.where((seen > 0) & (seen < HEAD), _TIP_OF_TAIL + ops.cast(seen, dtype) / _LONG_TAIL, 0.0)
    return ops.cast(ops.equal(seen, FRUIT), dtype), tail


def _moves(cells: Any, length: Any) -> Any:
    """Return what Paths has of each move, float32 [n, 16].

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
    enough = (size >= length[:, None]) & (size > 0)
    facts = (ops.equal(size, 0), ops.cast(size, "float32") / _MANY, enough, ops.not_equal(_any_of(beside), 0))
    return ops.concatenate([ops.cast(one, "float32") for one in facts], axis=1)


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
    return [ops.sum(part * (1 << np.arange(part.shape[1], dtype=np.int32)), axis=1) for part in parts]


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


def _tables() -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return by the head's cell: the cell at each place around it, CELLS for wall; wall as a plane; its lines."""
    away = np.arange(_SEEN) - _MIDDLE
    row, column = np.divmod(np.arange(CELLS), SIDE)
    rows, columns = (row[:, None] + away) % _SEEN, (column[:, None] + away) % _SEEN
    by_row, by_column = rows == SIDE, columns == SIDE
    wall = by_row[:, :, None] | by_column[:, None, :]
    cells = np.where(wall, CELLS, rows[:, :, None] * SIDE + columns[:, None, :])
    lines = np.concatenate([by_row, by_column], axis=1)
    return (
        cells.reshape(CELLS, -1).astype(np.int32),
        wall.reshape(CELLS, -1).astype(np.float32),
        lines.astype(np.float32),
    )


_AROUND, _WALLS, _LINES = _tables()
