"""Whole games without chance: each move is the one found best. Knows no network."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import Actions, Frames, Hunger
from workloads.snake.vector import VectorSnake

__all__ = ["Choose", "Watch", "play_greedily"]

Choose = Callable[[Frames, Hunger], Actions]
"""Frames [n, 10, 10] and hunger [n] -> the best move in each [n]."""
Watch = Callable[[Frames, NDArray[np.bool_]], None]
"""As Spectator.see."""


def play_greedily(
    choose: Choose, snakes: VectorSnake, see: Watch | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Play each game once; return the score and the number of steps of each [games].

    `see` is given the first of the games.
    """
    result = np.full(len(snakes.frames), -1)
    steps = np.zeros_like(result)
    while (result < 0).any():
        frames, playing = snakes.frames, result < 0
        _, _, ended, scores = snakes.step(choose(frames, snakes.hunger))
        steps += playing
        result[ended & playing] = scores[playing[ended]]
        if see is not None:
            see(frames[:1], ended[:1])
    return result, steps
