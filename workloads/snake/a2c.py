"""Advantage actor-critic: advantages, the loss and one update. Knows no process and no channel.

Actors play with weights that are some updates old. So the loss weighs each step by how much more probable today's
policy makes its action, clipped (Schulman et al. 2017, arXiv:1707.06347, equation 7); on a batch that today's policy
played that is plain advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783).
"""

from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from workloads.snake.rollout import Floats, Rollout
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, turned

__all__ = ["ActorCritic", "PolicyLoss", "advantages", "prepare", "update"]

_TRACE: Final = 0.95
_CLIP: Final = 0.2
_VALUE_WEIGHT: Final = 0.5
_GRADIENT_NORM: Final = 0.5
_MINIBATCH: Final = 256


def advantages(
    rewards: Floats, ended: NDArray[np.bool_], values: Floats, discount: float, trace: float = _TRACE
) -> Floats:
    """Return how much better each step [steps, games] went than `values` [steps + 1, games] foretold.

    Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, equation 16). After a step that ended its
    game nothing is worth anything, whatever the value of the next game's first frame.
    """
    goes_on = discount * ~ended
    surprise = rewards + goes_on * values[1:] - values[:-1]
    result = np.zeros_like(surprise)
    after: Floats = np.zeros_like(surprise[0])
    for step in reversed(range(len(rewards))):
        after = surprise[step] + goes_on[step] * trace * after
        result[step] = after
    return result.astype(np.float32)


class PolicyLoss(keras.losses.Loss):  # type: ignore[misc]
    """The clipped policy loss, less the weighted entropy.

    Targets are float32 [n, 3]: the action, its advantage, and its log-probability when it was played.
    """

    def __init__(self, entropy: float) -> None:
        super().__init__(name="policy_loss")
        self._entropy = entropy

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss [n] of logits `y_pred` [n, 4]."""
        action, advantage, then = y_true[:, 0], y_true[:, 1], y_true[:, 2]
        logs = ops.log_softmax(y_pred)
        now = ops.sum(logs * ops.one_hot(ops.cast(action, "int32"), logs.shape[-1]), axis=1)
        ratio = ops.exp(now - then)
        gain = ops.minimum(ratio * advantage, ops.clip(ratio, 1 - _CLIP, 1 + _CLIP) * advantage)
        return self._entropy * ops.sum(ops.exp(logs) * logs, axis=1) - gain


def prepare(model: keras.Model, settings: Settings) -> None:
    """Give the model its loss and a fresh optimizer."""
    optimizer = keras.optimizers.Adam(settings.learning_rate, epsilon=1e-5, global_clipnorm=_GRADIENT_NORM)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        loss=[PolicyLoss(settings.entropy), keras.losses.MeanSquaredError()],
        loss_weights=[1.0, _VALUE_WEIGHT],
        jit_compile=model.jit_compile,
    )


def update(model: keras.Model, rollout: Rollout, discount: float, random: np.random.Generator) -> None:
    """Learn once from each step of `rollout`, in minibatches, each turned or mirrored at random."""
    advantage = advantages(rollout.rewards, rollout.ended, rollout.values, discount)
    worth = (advantage + rollout.values[:-1]).reshape(-1, 1)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    policy = np.stack([rollout.actions, advantage, rollout.log_probabilities], axis=-1, dtype=np.float32).reshape(-1, 3)
    frames = rollout.frames.reshape(-1, *rollout.frames.shape[2:])
    order = random.permutation(rollout.steps)
    for start in range(0, rollout.steps, _MINIBATCH):
        of = order[start : start + _MINIBATCH]
        seen, targets = frames[of], policy[of]
        seen, actions = turned(seen, targets[:, 0].astype(np.int64), int(random.integers(SYMMETRIES)))
        targets[:, 0] = actions
        model.train_on_batch(seen, [targets, worth[of]])


class ActorCritic:
    """Teaches `model` from each rollout once."""

    def __init__(self, model: keras.Model, settings: Settings, random: np.random.Generator) -> None:
        self._model, self._random, self._discount = model, random, settings.discount
        prepare(model, settings)

    def learn(self, rollout: Rollout) -> bool:
        """Learn from a rollout."""
        update(self._model, rollout, self._discount, self._random)
        return False

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: network and optimizer are all."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Nothing more is needed than the network that was loaded."""
        del state
        return np.empty(0, np.int64)
