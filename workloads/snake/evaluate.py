"""How well a network plays without chance: `python -m workloads.snake.evaluate --weights FILE --games 256`.

Greedy play that goes in circles is ended by the rule of 100 steps without a fruit.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

from gpusched.frameworks import limit_memory
from workloads.snake.checkpoint import UnusableWeights, load_network
from workloads.snake.networks import judge
from workloads.snake.rules import Frames
from workloads.snake.vector import VectorSnake

__all__ = ["describe", "greedy_scores", "main", "play_greedily", "record_game"]

_SEED = 20_000

Watch = Callable[[Frames, NDArray[np.bool_]], None]


def greedy_scores(model: keras.Model, games: int, seed: int = _SEED) -> NDArray[np.int64]:
    """Play `games` whole games, each action the most probable one; return the scores [games]."""
    return play_greedily(model, VectorSnake(games, seed))[0]


def play_greedily(model: keras.Model, snakes: VectorSnake, see: Watch | None = None) -> tuple[NDArray[np.int64], int]:
    """Play each game once; return the scores [games], and how many steps these were, all games together.

    `see` is given the first of the games, as Spectator.see is.
    """
    result = np.full(len(snakes.frames), -1)
    steps = 0
    while (result < 0).any():
        frames, playing = snakes.frames, result < 0
        logits, _ = judge(model, frames)
        _, _, ended, scores = snakes.step(logits.argmax(axis=1))
        steps += int(playing.sum())
        result[ended & playing] = scores[playing[ended]]
        if see is not None:
            see(frames[:1], ended[:1])
    return result, steps


def record_game(model: keras.Model, seed: int = _SEED) -> list[Frames]:
    """Play one greedy game; return its frames [10, 10], first to last."""
    snake = VectorSnake(1, seed)
    frames = []
    ended = False
    while not ended:
        frames.append(snake.frames[0])
        logits, _ = judge(model, snake.frames)
        ended = bool(snake.step(logits.argmax(axis=1))[2][0])
    return frames


def describe(scores: NDArray[np.int64]) -> str:
    """Say mean and spread of `scores` in one line."""
    low, middle, high = np.percentile(scores, [5, 50, 95])
    return (
        f"greedy play: mean {scores.mean():.2f} fruits over {scores.size} games "
        f"(deviation {scores.std():.2f}, median {middle:.0f}, 5-95 % {low:.0f}-{high:.0f}, most {scores.max()})"
    )


def main() -> None:
    """Read the command line, play, print one line."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.snake.evaluate", description="greedy play of saved weights"
    )
    parser.add_argument("--weights", type=Path, required=True, help="a weights.npz that a learner saved")
    parser.add_argument("--games", type=int, default=256)
    parser.add_argument("--seed", type=int, default=_SEED, help="where the fruits will be")
    given = parser.parse_args()
    if given.games < 1:
        parser.error("--games: at least 1")
    if given.seed < 0:
        parser.error("--seed: at least 0")
    limit_memory()
    try:
        model = load_network(given.weights)
    except UnusableWeights as error:
        parser.error(str(error))
    print(describe(greedy_scores(model, given.games, given.seed)))


if __name__ == "__main__":
    main()
