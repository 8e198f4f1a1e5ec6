"""The eight ways to turn and mirror a board. A turned game is as good to learn from as the one that was played."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, MOVES, SIDE, Actions, Frames

__all__ = ["SYMMETRIES", "actions_turned_each", "frames_turned_each", "turned"]

SYMMETRIES: Final = 8


def turned(frames: Frames, actions: Actions, symmetry: int) -> tuple[Frames, Actions]:
    """Return frames [n, 10, 10] and actions [n], mirrored if `symmetry` is 4..7, turned left `symmetry % 4` times."""
    if symmetry >= len(MOVES):
        frames, actions = frames[:, :, ::-1], -actions
    quarters = symmetry % len(MOVES)
    return np.ascontiguousarray(np.rot90(frames, quarters, axes=(1, 2))), (actions - quarters) % len(MOVES)


def frames_turned_each(frames: Any, symmetry: Any) -> Any:
    """Return frames [n, 10, 10] as a tensor, each turned by its own `symmetry` int32 [n]."""
    from keras import ops  # a program that only turns games as arrays needs no framework

    cells = ops.reshape(frames, (-1, CELLS))
    return ops.reshape(ops.take_along_axis(cells, ops.take(_CELLS, symmetry, axis=0), axis=1), (-1, SIDE, SIDE))


def actions_turned_each(actions: Any, symmetry: Any) -> Any:
    """Return actions int32 [n] as a tensor, each turned by its own `symmetry` int32 [n]."""
    from keras import ops

    return ops.take(_ACTIONS, symmetry * len(MOVES) + ops.cast(actions, "int32"), axis=0)


def _tables() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return for each symmetry the cells [8, 100] that a board's cells come from, and the actions [32] after it."""
    board, moves = np.arange(CELLS, dtype=np.uint8).reshape(1, SIDE, SIDE), np.arange(len(MOVES))
    cells = [turned(board, moves[:1], symmetry)[0].ravel() for symmetry in range(SYMMETRIES)]
    actions = [turned(board, moves, symmetry)[1] for symmetry in range(SYMMETRIES)]
    return np.stack(cells).astype(np.int32), np.concatenate(actions).astype(np.int32)


_CELLS, _ACTIONS = _tables()
