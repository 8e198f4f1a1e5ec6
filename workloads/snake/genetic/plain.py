"""The network `small` in NumPy, for actors that play genomes: they import no framework, and agree to the last bit.

Weights are multiples of 2**-12, from -8 to 8, and what a layer gives is rounded to multiples of 2**-10. With that no
product or sum in float64 is ever rounded (the largest there can be, in the last layer, are less than 2**53 steps of
2**-22), so it does not matter in which order, by how many threads or on which CPU they are made.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import FRUIT, HEAD, SIDE, WALL, Frames, Hunger

__all__ = ["PlainNetwork", "rounded"]

_SEEN: Final = SIDE + 1
_AROUND: Final = np.arange(_SEEN) - _SEEN // 2
_PARTS: Final = 40
"""A cell of the tail is worth 20 and some fortieths, see inputs.py; so inputs are counted in fortieths."""
_LARGEST: Final = 8.0
_WEIGHT_PARTS: Final = 2.0**12
_PARTS_BETWEEN: Final = 2.0**10


def rounded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the nearest weights that are exact here: multiples of 1/4096, from -8 to 8."""
    parts = np.float32(_WEIGHT_PARTS)
    weights: NDArray[np.float32] = np.rint(np.clip(numbers, -_LARGEST, _LARGEST) * parts) / parts
    return weights


class PlainNetwork:
    """Plays as the network `small` with the inputs `frame` does with `weights` by name, which must be rounded."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._first, self._second, self._policy = (
            (weights[f"{layer}/kernel"].astype(np.float64), weights[f"{layer}/bias"].astype(np.float64))
            for layer in ("dense_1", "dense_2", "policy")
        )

    def logits(self, frames: Frames) -> NDArray[np.float64]:
        """Return the logits [n, 4] of frames [n, 10, 10]."""
        x = _between(_seen_from_head(frames) @ self._first[0] / _PARTS + self._first[1])
        x = _between(x @ self._second[0] + self._second[1])
        logits: NDArray[np.float64] = x @ self._policy[0] + self._policy[1]
        return logits

    def best(self, frames: Frames, hunger: Hunger) -> NDArray[np.intp]:
        """Return the best move [n] in each of the frames [n, 10, 10]; it does not see the hunger."""
        del hunger
        moves: NDArray[np.intp] = self.logits(frames).argmax(axis=1)
        return moves


def _between(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.rint(np.maximum(x, 0.0) * _PARTS_BETWEEN) / _PARTS_BETWEEN


def _seen_from_head(frames: Frames) -> NDArray[np.float64]:
    """[n, 363]: fruit, wall and tail of each cell, the head in the middle, in fortieths; as inputs.SeenFromHead."""
    games = len(frames)
    board = np.full((games, _SEEN, _SEEN), WALL, np.uint8)
    board[:, :SIDE, :SIDE] = frames
    row, column = np.divmod((frames.reshape(games, -1) == HEAD).argmax(axis=1), SIDE)
    rows, columns = (row[:, None] + _AROUND) % _SEEN, (column[:, None] + _AROUND) % _SEEN
    seen = board[np.arange(games)[:, None, None], rows[:, :, None], columns[:, None, :]]
    planes = np.zeros((games, _SEEN, _SEEN, 3))
    planes[..., 0] = (seen == FRUIT) * _PARTS
    planes[..., 1] = (seen == WALL) * _PARTS
    planes[..., 2] = _TAIL[seen]
    return planes.reshape(games, -1)


_TAIL: Final = np.where(
    (np.arange(256) > 0) & (np.arange(256) < WALL), _PARTS // 2 + np.arange(256, dtype=np.float64), 0.0
)
