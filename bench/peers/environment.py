"""Environment steps a second on one core: `python -m bench.peers.environment ROW GAMES SECONDS`."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, Final

import numpy as np

from workloads.snake.rules import MOVES

__all__ = ["ROWS", "rate"]

_DRAWN: Final = 256
_AT_ONCE: Final = 16

Step = Callable[[Any], Any]


def _one(_: int) -> Step:
    """Return what steps the plain environment, and starts the next game where one ended."""
    from workloads.snake.environment import SnakeEnvironment

    game = SnakeEnvironment()
    game.reset(seed=0)

    def step(actions: list[int]) -> None:
        for action in actions:
            _, _, terminated, truncated, _ = game.step(action)
            if terminated or truncated:
                game.reset()

    return step


def _ours(games: int) -> Step:
    from workloads.snake.vector import VectorSnake

    return VectorSnake(games, 0).step


def _numpy(games: int) -> Step:
    from bench.peers.snake_numpy import NumpySnake

    return NumpySnake(games, 0).step


def _numba(games: int) -> Step:
    from bench.peers.snake_numba import NumbaSnake

    return NumbaSnake(games).step


ROWS: Final[dict[str, Callable[[int], Step]]] = {"one": _one, "ours": _ours, "numpy": _numpy, "numba": _numba}


def rate(step: Step, actions: Iterator[Any], games: int, seconds: float) -> float:
    """Return how many steps of all games `step` makes in a second, measured for so many seconds."""
    made, began = 0, time.process_time()
    while (taken := time.process_time() - began) < seconds:
        for _ in range(_AT_ONCE):
            step(next(actions))
        made += _AT_ONCE * games
    return made / taken


def main() -> None:
    """Go to one core, play at random, and print the figure; or what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("games", type=int)
    parser.add_argument("seconds", type=float)
    typed = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    drawn = np.random.default_rng(1).integers(0, len(MOVES), (_DRAWN, typed.games)).astype(np.uint8)
    actions = cycle(drawn.tolist() if typed.row == "one" else list(drawn))
    try:
        step = ROWS[typed.row](typed.games)
    except ImportError as error:
        print(json.dumps({"missing": f"{error.name} is not installed"}))
        return
    rate(step, actions, typed.games, typed.seconds / 10)
    print(json.dumps({"rate": rate(step, actions, typed.games, typed.seconds)}))


if __name__ == "__main__":
    main()
