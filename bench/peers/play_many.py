"""Many games in one process, and one forward of the original's network for a step of all of them."""

import numpy as np

from bench.peers.play import Play
from workloads.snake.rules import FRUIT

__all__ = ["player"]


def player(row: str) -> Play:
    """Return what plays `ours-GAMES` or `strong-GAMES`."""
    whose, games = row.split("-")
    return _ours(int(games)) if whose == "ours" else _strong(int(games))


def _ours(games: int) -> Play:
    """What an actor of the snake workload does between two batches: whole rollouts, ready to be sent."""
    from workloads.snake.networks import build
    from workloads.snake.rollout import Playing
    from workloads.snake.settings import Settings
    from workloads.snake.vector import VectorSnake

    steps = Settings(network="original").steps_of_rollout
    playing = Playing(build("original"), VectorSnake(games, 0), np.random.default_rng(0))
    return lambda: playing.play(steps).steps


def _strong(games: int) -> Play:
    """Games in NumPy, a tf.function for the forward, actions drawn in NumPy; it keeps nothing of what it plays."""
    from bench.peers.play_one import FORWARDS, weights
    from bench.peers.snake_numpy import NumpySnake

    forward, snakes, random = FORWARDS["function"](weights()), NumpySnake(games, 0), np.random.default_rng(0)

    def play() -> int:
        logits = forward(np.divide(snakes.frames[..., None], FRUIT, dtype=np.float32))
        snakes.step((logits + random.gumbel(size=logits.shape)).argmax(axis=1))
        return games

    return play
