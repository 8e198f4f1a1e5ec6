"""The eight ways to turn and mirror a board. A turned game is as good to learn from as the one that was played."""

from typing import Final

import numpy as np

from workloads.snake.rules import MOVES, Actions, Frames

__all__ = ["SYMMETRIES", "turned"]

SYMMETRIES: Final = 8


def turned(frames: Frames, actions: Actions, symmetry: int) -> tuple[Frames, Actions]:
    """Return frames [n, 10, 10] and actions [n], mirrored if `symmetry` is 4..7, turned left `symmetry % 4` times."""
    if symmetry >= len(MOVES):
        frames, actions = frames[:, :, ::-1], -actions
    quarters = symmetry % len(MOVES)
    return np.ascontiguousarray(np.rot90(frames, quarters, axes=(1, 2))), (actions - quarters) % len(MOVES)
