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

from workloads.common.compiled import Steps, steps_on_minibatches
from workloads.snake.algorithm import Algorithm, reward_scale
from workloads.snake.networks import layout_of, reader
from workloads.snake.rollout import Floats, Rollout
from workloads.snake.settings import Network, Settings
from workloads.snake.symmetry import SYMMETRIES, turned_each

__all__ = ["ActorCritic", "advantages", "policy_loss"]

_TRACE: Final = 0.95
_CLIP: Final = 0.2
_VALUE_WEIGHT: Final = 0.5
_GRADIENT_NORM: Final = 0.5
_MINIBATCH: Final[dict[Network, int]] = {"original": 256, "small": 1024}
_LAST_ENTROPY: Final = 0.05
"""What part of the entropy's weight is left at the end."""
_STAYS: Final = 0.5
"""The part of a run in which nothing falls yet (docs/snake-measured.md)."""


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


def fallen(done: float) -> float:
    """Return how far what falls over a run has fallen, 0 to 1, when that part of the run is `done`, 0 to 1.

    It stays for the first part and then falls in a straight line: the schedule that Hu et al. 2024 (arXiv:2404.06395)
    call warmup-stable-decay, without a warmup.
    """
    return max(0.0, done - _STAYS) / (1 - _STAYS)


def policy_loss(logits: Any, actions: Any, advantage: Any, then: Any, entropy: Any) -> Any:
    """Return the clipped policy loss less the entropy, weighted by `entropy`, of each step [n].

    `then`: the log-probability [n] of the actions [n] when they were played.
    """
    logs = ops.log_softmax(logits)
    now = ops.sum(logs * ops.one_hot(actions, logs.shape[-1], dtype=logs.dtype), axis=1)
    ratio = ops.exp(now - then)
    gain = ops.minimum(ratio * advantage, ops.clip(ratio, 1 - _CLIP, 1 + _CLIP) * advantage)
    return entropy * ops.sum(ops.exp(logs) * logs, axis=1) - gain


class ActorCritic(Algorithm):
    """Teaches `model` from each rollout once, each step turned or mirrored at random.

    In the second half of a run with a limit the learning rate falls to 0 and the entropy's weight to a twentieth.
    """

    def __init__(self, model: keras.Model, settings: Settings, random: np.random.Generator) -> None:
        self._model, self._random, self._settings = model, random, settings
        optimizer = keras.optimizers.Adam(settings.learning_rate, epsilon=1e-5, global_clipnorm=_GRADIENT_NORM)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer=optimizer, jit_compile=model.jit_compile)
        self._layout = layout_of(model)
        self._steps = _steps(model)

    def learn(self, rollout: Rollout, done: float) -> bool:
        """Learn from a rollout, when that part of the run is `done`, 0 to 1."""
        settings, fell = self._settings, fallen(done)
        self._model.optimizer.learning_rate = settings.learning_rate * (1 - fell)
        discount = settings.discount
        advantage = advantages(rollout.rewards * reward_scale(discount), rollout.ended, rollout.values, discount)
        worth = advantage + rollout.values[:-1]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        steps, minibatches = rollout.steps, max(1, rollout.steps // _MINIBATCH[settings.network])
        symmetries = self._random.integers(SYMMETRIES, size=steps)
        observations = rollout.observations.reshape(steps, -1)
        observations, actions = turned_each(observations, rollout.actions.ravel(), symmetries, self._layout)
        of_step = {
            "observations": observations,
            "actions": actions,
            "then": rollout.log_probabilities.ravel(),
            "advantage": advantage.ravel(),
            "worth": worth.ravel(),
        }
        order = self._random.permutation(steps)[: steps // minibatches * minibatches].reshape(minibatches, -1)
        entropy = np.full(minibatches, settings.entropy * (1 - (1 - _LAST_ENTROPY) * fell), np.float32)
        self._steps({name: array[order] for name, array in of_step.items()} | {"entropy": entropy})
        return False


def _steps(model: keras.Model) -> Steps:
    part = reader(model)
    part.compile(optimizer=model.optimizer, jit_compile=model.jit_compile)

    def loss(outputs: Any, played: Mapping[str, Any]) -> Any:
        logits, values = outputs
        policy = policy_loss(logits, *(played[name] for name in ("actions", "advantage", "then", "entropy")))
        return ops.mean(policy + _VALUE_WEIGHT * ops.square(values[:, 0] - played["worth"]))

    return steps_on_minibatches(part, lambda played: played["observations"], loss)
