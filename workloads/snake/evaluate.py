"""How well a network plays without chance: `python -m workloads.snake.evaluate --weights FILE --games 256`.

Greedy play that goes in circles is ended by the rule of 100 steps without a fruit.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

from gpusched.frameworks import limit_memory
from workloads.snake.checkpoint import UnusableWeights, load_network
from workloads.snake.greedy import play_greedily
from workloads.snake.networks import judge
from workloads.snake.rules import Frames
from workloads.snake.vector import VectorSnake

__all__ = ["describe", "greedy_scores", "main", "record_game"]

_SEED = 20_000


def greedy_scores(model: keras.Model, games: int, seed: int = _SEED) -> NDArray[np.int64]:
    """Play `games` whole games, each action the most probable one; return the scores [games]."""
    return play_greedily(lambda frames: judge(model, frames)[0].argmax(axis=1), VectorSnake(games, seed))[0]


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
