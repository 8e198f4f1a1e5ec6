"""How well a network plays without chance: `gpusched launch snake --evaluate FILE`, and the end of each training.

The same weights play the same games each time on one kind of CPU, from a seed that no training uses: those are below
2**32. Greedy play that goes in circles is ended by the rule of 100 steps without a fruit.
"""

import sys
from pathlib import Path
from typing import Final

import keras
import numpy as np
from numpy.typing import NDArray

from workloads.common.evaluation import save_evaluation
from workloads.snake.checkpoint import Counts
from workloads.snake.greedy import play_greedily
from workloads.snake.networks import judge
from workloads.snake.pictures import save_game
from workloads.snake.rules import CELLS, START, Actions, Frames, Hunger
from workloads.snake.vector import VectorSnake

__all__ = ["GAMES", "describe", "evaluate", "full_interval", "greedy_games"]

GAMES: Final = 256

_SEED: Final = 2**32 + 20_000
_NORMAL_95: Final = 1.96
_FULL: Final = CELLS - len(START)


def evaluate(model: keras.Model, counts: Counts, run_dir: Path) -> str:
    """Play greedy games; leave what they gave, and a picture of the median one; return it in words. Raises OSError."""
    scores, median_game = greedy_games(model, GAMES)
    full = int((scores == _FULL).sum())
    seen = {"network": counts.network, "inputs": counts.inputs}
    shares = {"full": full / GAMES, "full_interval": full_interval(full, GAMES)}
    path = run_dir / "evaluation.json"
    save_evaluation(path, scores, steps=counts.steps, seconds=counts.seconds, more=shares | seen)
    try:
        save_game(median_game, run_dir / "game.gif", counts.inputs)
    except ImportError as error:
        print(f"no picture: {error}; it comes with gpusched's extra `tensorflow`", file=sys.stderr, flush=True)
    return f"{describe(scores)}; network {counts.network}, inputs {counts.inputs}"


def greedy_games(model: keras.Model, games: int, seed: int = _SEED) -> tuple[NDArray[np.int64], list[Frames]]:
    """Play `games` whole games, each action the most probable one.

    Returns the scores [games], and the frames [10, 10] of the median game, in order.
    """
    shown: list[Frames] = []

    def choose(frames: Frames, hunger: Hunger) -> Actions:
        shown.append(frames)
        moves: Actions = judge(model, frames, hunger).logits.argmax(axis=1)
        return moves

    scores, steps = play_greedily(choose, VectorSnake(games, seed))
    chosen = _median_game(scores, steps)
    return scores, [frames[chosen].copy() for frames in shown[: steps[chosen]]]


def _median_game(scores: NDArray[np.int64], steps: NDArray[np.int64]) -> int:
    """Return a game with the median score, of several the longest: a score of 0 can be a game of one step."""
    median = np.percentile(scores, 50, method="nearest")
    return int(np.where(scores == median, steps, 0).argmax())


def describe(scores: NDArray[np.int64]) -> str:
    """Return the mean of `scores` and the share of full boards, each with its 95 % interval, and the spread."""
    games, mean, deviation = scores.size, scores.mean(), scores.std()
    off = _NORMAL_95 * deviation / np.sqrt(games)
    low, middle, high = np.percentile(scores, [5, 50, 95])
    least, most = full_interval(int((scores == _FULL).sum()), games)
    return (
        f"greedy play: mean {mean:.2f} of {_FULL} fruits ({mean - off:.1f} to {mean + off:.1f}) over {games} games, "
        f"deviation {deviation:.2f}, median {middle:.0f}, 5-95 % {low:.0f}-{high:.0f}, most {scores.max()}; "
        f"{(scores == _FULL).mean():.1%} full boards ({least:.1%} to {most:.1%})"
    )


def full_interval(full: int, games: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of which `full` of `games` were seen (Wilson 1927)."""
    share, square = full / games, _NORMAL_95**2
    middle, off = (
        share + square / (2 * games),
        _NORMAL_95 * np.sqrt((share * (1 - share) + square / (4 * games)) / games),
    )
    return max(0.0, float((middle - off) / (1 + square / games))), float((middle + off) / (1 + square / games))
