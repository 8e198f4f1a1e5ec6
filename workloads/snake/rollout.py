"""A rollout: what an actor plays and sends, and a learner learns from. Knows neither the channel nor how one learns."""

from collections.abc import Mapping
from typing import Any, Final

import keras
import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.snake.networks import judge
from workloads.snake.rules import SIDE, Frames, Hunger
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

    `frames` uint8 [steps, games, 10, 10] and `hunger` uint8 [steps, games]: what each action was chosen from. `actions`
    uint8, `rewards` float32, and `ended` bool (the game ended with this step) are [steps, games], too. `scores` int64:
    of games that ended, but perhaps not of all.
    """

    frames: Frames
    hunger: Hunger
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
    """Steps, and what the policy that played them thought of them.

    `log_probabilities` float32 [steps, games] of the actions. `values` float32 [steps + 1, games] has one more, of the
    frames after the last step.
    """

    log_probabilities: Floats
    values: Floats


TYPES_OF_STEPS: Final[dict[str, type[np.generic]]] = {
    "frames": np.uint8,
    "hunger": np.uint8,
    "actions": np.uint8,
    "rewards": np.float32,
    "ended": np.bool_,
    "scores": np.int64,
}
_TYPES: Final = TYPES_OF_STEPS | {"log_probabilities": np.float32, "values": np.float32}


def rollout_from(arrays: Mapping[str, NDArray[Any]]) -> Rollout:
    """Return the rollout that travelled as `arrays`. Raises ValueError if they are not one."""
    check_arrays(arrays, _TYPES, {"frames": (0, SIDE, SIDE), "values": (1,)})
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


def empty_rollout(steps: int, games: int) -> Rollout:
    """Return a rollout of that size to be filled, with no scores."""
    shape = (steps, games)
    return Rollout(
        frames=np.empty((*shape, SIDE, SIDE), np.uint8),
        hunger=np.empty(shape, np.uint8),
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
        self._judged: tuple[Floats, Floats] | None = None

    def play(self, steps: int) -> Rollout:
        """Play each game on for `steps` steps, with actions drawn from the model's policy."""
        rollout = empty_rollout(steps, len(self._games.frames))
        logits, rollout.values[0] = self._judged or self._judge()
        scores = []
        for step in range(steps):
            rollout.frames[step], rollout.hunger[step] = self._games.frames, self._games.hunger
            rollout.actions[step], rollout.log_probabilities[step] = sample(logits, self._random)
            _, rollout.rewards[step], rollout.ended[step], finished = self._games.step(rollout.actions[step])
            scores.append(finished)
            self._judged = logits, rollout.values[step + 1] = self._judge()
        return msgspec.structs.replace(rollout, scores=np.concatenate(scores).astype(np.int64))

    def _judge(self) -> tuple[Floats, Floats]:
        return judge(self._model, self._games.frames, self._games.hunger)


def sample(logits: Floats, random: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
    """Draw an action [n] from each row of `logits` [n, 4], and return its log-probability [n] with it.

    The action with the largest logit plus Gumbel noise is distributed as the softmax of the logits.
    """
    actions = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    highest = logits.max(axis=1, keepdims=True)
    normalizer = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1))
    return actions, logits[np.arange(len(logits)), actions] - normalizer
