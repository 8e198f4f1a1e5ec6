"""Steps that actors try for Q-learning: played greedily but for some moves at random, and packed to be sent.

Knows neither the channel nor how one learns.
"""

from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from workloads.snake.greedy import Watch
from workloads.snake.networks import Judged, judge
from workloads.snake.rollout import TYPES_OF_STEPS, Steps, check_arrays
from workloads.snake.rules import MOVES
from workloads.snake.symmetry import Observations
from workloads.snake.vector import VectorSnake

__all__ = ["Explored", "Exploring", "explored_from"]

_MOST: Final = 0.1
_LEAST: Final = 0.001
_TOLD: Final = 0.01


class Explored(Steps, frozen=True, kw_only=True):
    """Steps, and `observations` uint8 [steps + 1, games, k]: what each action was chosen from, and one after the last.

    They are as the network has them: where moves lead is found once for each board.
    """

    observations: Observations


_TYPES: Final = TYPES_OF_STEPS | {"observations": np.uint8}


def explored_from(arrays: Mapping[str, NDArray[Any]], size: int) -> Explored:
    """Return the steps that travelled as `arrays`; an observation has `size` bytes.

    Raises ValueError if they are none.
    """
    check_arrays(arrays, _TYPES, {"observations": (1, size)})
    if arrays["actions"].size and arrays["actions"].max() >= len(MOVES):
        raise ValueError(f"there is no action {arrays['actions'].max()}")
    return Explored(**arrays)


class Exploring:
    """Games that a model plays on by its Q-values, its logits, one piece after the other.

    Each game has a chance of its own that a move is drawn at random, from one in ten to one in a thousand (as actors in
    Horgan et al. 2018, arXiv:1803.00933): some see what else there is, and some get far enough to see long snakes. The
    scores that are told are those of the half that explores least: the others end soon, and say little of the network.
    """

    def __init__(self, model: keras.Model, games: VectorSnake, random: np.random.Generator) -> None:
        self._model, self._games, self._random = model, games, random
        self._chances = np.geomspace(_MOST, _LEAST, len(games.frames))
        self._told = self._chances <= max(_TOLD, self._chances[-1])
        self._judged: Judged | None = None

    def play(self, steps: int, see: Watch | None = None) -> Explored:
        """Play each game on for `steps` steps; `see` the first game."""
        judged = self._judged or self._judge()
        games, size = judged.observations.shape
        observations, shape = np.empty((steps + 1, games, size), np.uint8), (steps, games)
        actions, rewards, ended = np.empty(shape, np.uint8), np.empty(shape, np.float32), np.empty(shape, np.bool_)
        scores = []
        observations[0] = judged.observations
        for step in range(steps):
            frames = self._games.frames
            actions[step] = self._choose(judged)
            _, rewards[step], ended[step], finished = self._games.step(actions[step])
            scores.append(finished[self._told[ended[step]]])
            judged = self._judge()
            observations[step + 1] = judged.observations
            if see is not None:
                see(frames[:1], ended[step, :1])
        self._judged = judged
        ends = np.concatenate(scores).astype(np.int64)
        return Explored(observations=observations, actions=actions, rewards=rewards, ended=ended, scores=ends)

    def _judge(self) -> Judged:
        return judge(self._model, self._games.frames, self._games.hunger)

    def _choose(self, judged: Judged) -> NDArray[np.intp]:
        best = judged.logits.argmax(axis=1)
        anything = self._random.integers(len(MOVES), size=len(best))
        return np.where(self._random.random(len(best)) < self._chances, anything, best)
