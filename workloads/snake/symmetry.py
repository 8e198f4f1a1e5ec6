"""The eight ways to turn and mirror a board. A turned game is as good to learn from as the one that was played."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import MOVES, Actions, Frames

__all__ = ["SYMMETRIES", "Layout", "Observations", "turned", "turned_each"]

SYMMETRIES: Final = 8

Observations = NDArray[np.uint8]
"""[..., k]: what a network sees of each of some boards, k bytes; see inputs.py."""


def turned(frames: Frames, actions: Actions, symmetry: int) -> tuple[Frames, Actions]:
    """Return frames [n, 10, 10] and actions [n], mirrored if `symmetry` is 4..7, turned left `symmetry % 4` times."""
    if symmetry >= len(MOVES):
        frames, actions = frames[:, :, ::-1], -actions
    quarters = symmetry % len(MOVES)
    return np.ascontiguousarray(np.rot90(frames, quarters, axes=(1, 2))), (actions - quarters) % len(MOVES)


class Layout(NamedTuple):
    """What the bytes of an observation are: `side` rows and columns of a board, `counts`, one for each of `moves`."""

    side: int
    counts: int = 0
    moves: int = 0

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where the board, the counts and the moves are."""
        board, moves = self.side**2, self.side**2 + self.counts
        return slice(0, board), slice(board, moves), slice(moves, self.size)

    @property
    def size(self) -> int:
        """How many bytes an observation has."""
        return self.side**2 + self.counts + self.moves


def turned_each(
    observations: Observations, actions: Actions, symmetries: NDArray[np.integer[Any]], layout: Layout
) -> tuple[Observations, Actions]:
    """Return observations [n, layout.size] and actions [n], each turned by its own one of `symmetries` [n]."""
    images, goes = observations.copy(), np.empty_like(actions)
    board, _, moves = layout.parts
    for symmetry in range(SYMMETRIES):
        mine = (symmetries == symmetry).nonzero()[0]
        places = observations[mine, board].reshape(-1, layout.side, layout.side)
        turned_places, goes[mine] = turned(places, actions[mine], symmetry)
        images[mine, board] = turned_places.reshape(-1, layout.side**2)
        came_from = turned(_NOTHING, np.arange(layout.moves), symmetry)[1].argsort()
        images[mine, moves] = observations[mine, moves][:, came_from]
    return images, goes


_NOTHING: Final = np.empty((0, 1, 1), np.uint8)
