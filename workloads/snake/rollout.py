"""A rollout: what an actor plays and sends, and a learner learns from. Knows neither the channel nor how one learns."""

from collections.abc import Mapping
from typing import Any, Final

import keras
import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.snake.greedy import Watch
from workloads.snake.networks import Judged, judge
from workloads.snake.symmetry import Observations
from workloads.snake.vector import VectorSnake

__all__ = [
    "TYPES_OF_STEPS",
    "Floats",
    "Playing",
    "Rollout",
    "Steps",
    "check_arrays",
    "empty_rollout",
    "rollout_from",
    "sample",
]

Floats = NDArray[np.float32]


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps of some games, in step with each other: what all that actors send has in common.

    `actions` uint8, `rewards` float32, and `ended` bool (the game ended with this step) are [steps, games]. `scores`
    int64: of games that ended, but perhaps not of all.
    """

    actions: NDArray[np.uint8]
    rewards: Floats
    ended: NDArray[np.bool_]
    scores: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """How many environment steps these are, all games together."""
        return self.actions.size

    @property
    def games(self) -> int:
        """How many games ended, whether their scores are told or not."""
        return int(self.ended.sum())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, as they travel."""
        return msgspec.structs.asdict(self)


class Rollout(Steps, frozen=True, kw_only=True):
    """Steps, what the policy that played them saw, and what it thought of it.

    `observations` uint8 [steps, games, k] are what the actions were chosen from. `log_probabilities` float32
    [steps, games] of the actions. `values` float32 [steps + 1, games] has one more, of what is there after the last
    step.
    """

    observations: Observations
    log_probabilities: Floats
    values: Floats


TYPES_OF_STEPS: Final[dict[str, type[np.generic]]] = {
    "actions": np.uint8,
    "rewards": np.float32,
    "ended": np.bool_,
    "scores": np.int64,
}
_TYPES: Final = TYPES_OF_STEPS | {"observations": np.uint8, "log_probabilities": np.float32, "values": np.float32}


def rollout_from(arrays: Mapping[str, NDArray[Any]], size: int) -> Rollout:
    """Return the rollout that travelled as `arrays`; an observation has `size` bytes.

    Raises ValueError if they are none.
    """
    check_arrays(arrays, _TYPES, {"observations": (0, size), "values": (1,)})
    return Rollout(**arrays)


def check_arrays(
    arrays: Mapping[str, NDArray[Any]], types: Mapping[str, type[np.generic]], odd: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ValueError unless there are arrays of these names and types, [steps, games] as `actions` is.

    But `scores` are [n], and those in `odd` have so many steps more, and then further axes.
    """
    if set(arrays) != set(types):
        raise ValueError(f"a rollout has {sorted(types)}, not {sorted(arrays)}")
    shape = arrays["actions"].shape
    if len(shape) != 2:  # noqa: PLR2004
        raise ValueError(f"actions are {shape}, not [steps, games]")
    shapes = dict.fromkeys(types, shape) | {"scores": (arrays["scores"].size,)}
    shapes |= {name: (shape[0] + more, shape[1], *axes) for name, (more, *axes) in odd.items()}
    for name, array in arrays.items():
        if array.dtype != types[name] or array.shape != shapes[name]:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {np.dtype(types[name])} {shapes[name]}")


def empty_rollout(steps: int, games: int, size: int) -> Rollout:
    """Return a rollout of so many steps, games, and bytes of an observation, to be filled, with no scores."""
    shape = (steps, games)
    return Rollout(
        observations=np.empty((*shape, size), np.uint8),
        actions=np.empty(shape, np.uint8),
        log_probabilities=np.empty(shape, np.float32),
        rewards=np.empty(shape, np.float32),
        ended=np.empty(shape, np.bool_),
        values=np.empty((steps + 1, games), np.float32),
        scores=np.empty(0, np.int64),
    )


class Playing:
    """Games that a model plays on, one rollout after the other.

    What it thought of the frames that a rollout ends with is what the next one begins with, so no frame is judged
    twice. If the model's weights change between, that first step is the older policy's, and so is its log-probability.
    """

    def __init__(self, model: keras.Model, games: VectorSnake, random: np.random.Generator) -> None:
        self._model, self._games, self._random = model, games, random
        self._judged: Judged | None = None

    def play(self, steps: int, see: Watch | None = None) -> Rollout:
        """Play each game on for `steps` steps, with actions drawn from the model's policy; `see` the first game."""
        judged = self._judged or self._judge()
        rollout = empty_rollout(steps, *judged.observations.shape)
        rollout.values[0] = judged.values
        scores = []
        for step in range(steps):
            frames = self._games.frames
            rollout.observations[step] = judged.observations
            rollout.actions[step], rollout.log_probabilities[step] = sample(judged.logits, self._random)
            _, rollout.rewards[step], rollout.ended[step], finished = self._games.step(rollout.actions[step])
            scores.append(finished)
            judged = self._judge()
            rollout.values[step + 1] = judged.values
            if see is not None:
                see(frames[:1], rollout.ended[step, :1])
        self._judged = judged
        return msgspec.structs.replace(rollout, scores=np.concatenate(scores).astype(np.int64))

    def _judge(self) -> Judged:
        return judge(self._model, self._games.frames, self._games.hunger)


def sample(logits: Floats, random: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
    """Draw an action [n] from each row of `logits` [n, 4], and return its log-probability [n] with it.

    The action with the largest logit plus Gumbel noise is distributed as the softmax of the logits.
    """
    actions = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    highest = logits.max(axis=1, keepdims=True)
    normalizer = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1))
    return actions, logits[np.arange(len(logits)), actions] - normalizer
