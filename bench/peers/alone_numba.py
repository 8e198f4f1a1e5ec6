"""What a network sees of many boards of Snake, as loops that Numba compiles: the bytes of workloads/snake/inputs.py.

Uncompiled they are plain Python: so tests can hold them against the product's.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, WALL
from workloads.snake.symmetry import SYMMETRIES, Layout, turned_each

__all__ = ["LAYOUT", "MOVE_OF", "compiled", "plain", "read"]

_AROUND: Final = SIDE + 1
_MIDDLE: Final = _AROUND // 2
_PLACES: Final = _AROUND * _AROUND
_MOVES: Final = len(MOVES)
_LAST_TWO: Final = 2
_TIP: Final = 128
LAYOUT: Final = Layout(_AROUND, counts=2, moves=len(MOVES))
_SIZE: Final = LAYOUT.size


def _next_cells() -> Any:
    """[cell, move] -> the cell that it leads to, -1 for a wall."""
    table = np.full((CELLS, len(MOVES)), -1, np.int64)
    for cell in range(CELLS):
        for move, (down, right) in enumerate(MOVES):
            row, column = cell // SIDE + down, cell % SIDE + right
            if 0 <= row < SIDE and 0 <= column < SIDE:
                table[cell, move] = row * SIDE + column
    return table


def _turns() -> tuple[Any, Any]:
    """[symmetry, byte] -> the byte that it is of a turned observation; [symmetry, move] -> the move that it becomes."""
    seen = np.arange(_SIZE, dtype=np.uint8)[None]
    places, moves = np.empty((SYMMETRIES, _SIZE), np.int64), np.empty((SYMMETRIES, len(MOVES)), np.int64)
    for symmetry in range(SYMMETRIES):
        for move in range(len(MOVES)):
            image, (moves[symmetry, move],) = turned_each(seen, np.array([move]), np.array([symmetry]), LAYOUT)
            places[symmetry] = image[0]
    return places, moves


_NEXT: Final = _next_cells()
PLACE_OF, MOVE_OF = _turns()


def plain(compile_it: Callable[[Any], Any] = lambda function: function) -> tuple[Any, Any]:  # noqa: C901 (four functions)
    """Return `observe` and `turn`, each part of which `compile_it` has made fast.

    `observe(frames, hunger, seen)` writes what is seen of frames [n, 100] with a hunger [n] into `seen` [n, 127], as
    inputs.AroundAndPaths. `turn(seen, order, symmetries, images)` writes the observations seen[order] into `images`,
    each turned or mirrored by its own symmetry.
    """

    def led_to(board: Any, start: int, mark: Any, found: Any) -> int:
        """Return how many cells `start` leads to, and 128 more if the tip of the tail is beside them."""
        mark[:] = 0
        mark[start], found[0] = 1, start
        count, at, tip = 1, 0, 0
        while at < count:
            for move in range(_MOVES):
                cell = _NEXT[found[at], move]
                if cell >= 0 and not mark[cell]:
                    if 0 < board[cell] <= _LAST_TWO:
                        tip = _TIP
                    if board[cell] == 0 or board[cell] == FRUIT:
                        mark[cell], found[count] = 1, cell
                        count += 1
            at += 1
        return count | tip

    def around(board: Any, mine: Any) -> int:
        """Write what is around the head, and the length; return the head's cell."""
        head, length = 0, 0
        for cell in range(CELLS):
            if board[cell] == HEAD:
                head = cell
            elif board[cell] < HEAD:
                length = max(length, board[cell])
        for place in range(_PLACES):
            row = (head // SIDE + place // _AROUND - _MIDDLE) % _AROUND
            column = (head % SIDE + place % _AROUND - _MIDDLE) % _AROUND
            mine[place] = WALL if max(row, column) == SIDE else board[row * SIDE + column]
        mine[_PLACES] = length + 1
        return head

    led_to, around = compile_it(led_to), compile_it(around)

    def observe(frames: Any, hunger: Any, seen: Any) -> None:
        mark, found = np.zeros(CELLS, np.int64), np.empty(CELLS, np.int64)
        for game in range(len(frames)):
            board, mine = frames[game], seen[game]
            head = around(board, mine)
            mine[_PLACES + 1] = hunger[game]
            for move in range(_MOVES):
                start = _NEXT[head, move]
                enters = start >= 0 and (board[start] <= 1 or board[start] == FRUIT)
                mine[_PLACES + 2 + move] = led_to(board, start, mark, found) if enters else 0

    def turn(seen: Any, order: Any, symmetries: Any, images: Any) -> None:
        for row in range(len(order)):
            for byte in range(_SIZE):
                images[row, byte] = seen[order[row], PLACE_OF[symmetries[row], byte]]

    return compile_it(observe), compile_it(turn)


def compiled() -> tuple[Any, Any]:
    """Return both, compiled. Raises ImportError without Numba."""
    import numba

    return plain(numba.njit)


def read(seen: Any, np: Any) -> Any:
    """Return what the network reads of observations uint8 [n, 127]: [n, 284], see inputs.Paths. `np`: or JAX's."""
    board, counts, moves = (seen[:, part] for part in LAYOUT.parts)
    places = board.reshape(-1, LAYOUT.side, LAYOUT.side)
    middle = LAYOUT.side // 2
    tail = np.where((board > 0) & (board < WALL), 0.5 + board / 40, 0.0)
    walls = np.concatenate([places[:, :, middle], places[:, middle, :]], axis=1) == WALL
    counts, reached = counts.astype("float32"), (moves & 127).astype("float32")
    enough = (reached > 0) & (reached >= counts[:, :1])
    parts = [board == FRUIT, tail, walls, counts / 50, np.maximum(counts - 50, 0) / 25, reached == 0, reached / 50]
    return np.concatenate([part.astype("float32") for part in (*parts, enough, moves >= 128)], axis=1)  # noqa: PLR2004
