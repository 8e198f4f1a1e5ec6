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
from workloads.snake.rules import Actions, Frames, Hunger
from workloads.snake.vector import VectorSnake

__all__ = ["describe", "greedy_games", "greedy_scores", "main"]

_SEED = 20_000


def greedy_scores(model: keras.Model, games: int, seed: int = _SEED) -> NDArray[np.int64]:
    """Play `games` whole games, each action the most probable one; return the scores [games]."""
    return play_greedily(lambda *seen: judge(model, *seen)[0].argmax(axis=1), VectorSnake(games, seed))[0]


def greedy_games(model: keras.Model, games: int, seed: int = _SEED) -> tuple[NDArray[np.int64], list[Frames]]:
    """Play as greedy_scores does; return the scores [games], and the frames [10, 10] of the median game, in order."""
    shown: list[Frames] = []

    def choose(frames: Frames, hunger: Hunger) -> Actions:
        shown.append(frames)
        moves: Actions = judge(model, frames, hunger)[0].argmax(axis=1)
        return moves

    scores, steps = play_greedily(choose, VectorSnake(games, seed))
    chosen = _median_game(scores, steps)
    return scores, [frames[chosen].copy() for frames in shown[: steps[chosen]]]


def _median_game(scores: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
    """Return a game with the median score, of several the longest: a score of 0 can be a game of one step."""
    median = np.percentile(scores, 50, method="nearest")
    return int(np.where(scores == median, steps, 0).argmax())


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
