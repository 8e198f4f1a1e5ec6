"""Q-learning with a replay memory and a target network: targets, the loss and one update. Knows no channel.

The network's four logits are the Q-values of the moves, so that greedy play is the same for all algorithms. Targets are
those of double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461). The value head learns the same targets, which
nothing here needs; so saved weights are whole, and advantage actor-critic can go on from them.
"""

from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
from keras import ops
from msgspec.structs import replace
from numpy.typing import NDArray

from workloads.common.compiled import Call, compiled_call, steps_on_minibatches
from workloads.common.weights import Weights
from workloads.snake.algorithm import Algorithm, reward_scale
from workloads.snake.exploring import Explored
from workloads.snake.networks import build, layout_of, reader
from workloads.snake.replay import Replay, Transitions, transitions
from workloads.snake.rollout import Floats
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, Observations, turned_each

__all__ = ["QLearning", "q_loss", "targets"]

_CAPACITY: Final = 500_000
_ENOUGH: Final = 10_000
_MINIBATCH: Final = 512
_LEARNT_OFTEN: Final = 2
"""How often a transition is learnt from, in the mean, while it is in the memory."""
_TARGET_EVERY: Final = 200
_GRADIENT_NORM: Final = 10.0
_VALUE_WEIGHT: Final = 0.5


def q_loss(values: Any, moves: Any, worth: Any) -> Any:
    """Return Huber's loss [n] of Q-values [n, 4]: of those of the moves [n], which are to be their `worth` [n]."""
    made = ops.one_hot(moves, values.shape[-1], dtype=values.dtype)
    return _huber(ops.sum(values * made, axis=1) - worth)


def _huber(error: Any) -> Any:
    error = ops.abs(error)
    return ops.where(error < 1.0, 0.5 * ops.square(error), error - 0.5)


def targets(batch: Transitions, online: Floats, target: Floats) -> Floats:
    """Return what each move is worth [n]: its return, and later the move that `online` [n, 4] finds best there.

    How good that one is, `target` [n, 4] says: who is both asked which is best and how good takes luck for skill.
    """
    best: Floats = target[np.arange(len(target)), online.argmax(axis=1)]
    return batch.returns + batch.worth * best


class QLearning(Algorithm):
    """Teaches `model` from a memory of what was explored; the memory is not saved, and the target network neither.

    Over a run with a limit the learning rate falls to 0 in a straight line.
    """

    def __init__(self, model: keras.Model, settings: Settings, random: np.random.Generator) -> None:
        self._model, self._random, self._settings = model, random, settings
        optimizer = keras.optimizers.Adam(settings.learning_rate, global_clipnorm=_GRADIENT_NORM)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer=optimizer, jit_compile=model.jit_compile)
        self._target = build(settings.network, settings.seen)
        online, target = reader(model), reader(self._target)
        self._online_values, self._target_values = compiled_call(online), compiled_call(target)
        online.compile(optimizer=optimizer, jit_compile=model.jit_compile)
        self._steps = steps_on_minibatches(online, lambda batch: batch["observations"], _loss)
        self._layout = layout_of(model)
        self._copy()
        self._memory = Replay(_CAPACITY, self._layout.size)

    def learn(self, explored: Explored, done: float) -> bool:
        """Remember what was explored, and learn from some of all that is remembered."""
        discount = self._settings.discount
        self._model.optimizer.learning_rate = self._settings.learning_rate * (1 - done)
        scaled = replace(explored, rewards=explored.rewards * np.float32(reward_scale(discount)))
        self._memory.add(transitions(scaled, discount))
        if self._memory.size >= _ENOUGH:
            self._update(max(1, _LEARNT_OFTEN * explored.steps // _MINIBATCH))
        return False

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Go on with a network that was loaded, of which the target network begins as a copy."""
        self._copy()
        return super().restore(state)

    def _update(self, minibatches: int) -> None:
        """Take a step on each of some minibatches of transitions, each of these turned or mirrored at random.

        Their targets are all made before the first step, so that those of the last step are some steps old.
        """
        batch = self._memory.draw(minibatches * _MINIBATCH, self._random)
        symmetries = self._random.integers(SYMMETRIES, size=len(batch.actions))
        observations, moves = turned_each(batch.observations, batch.actions.astype(np.int64), symmetries, self._layout)
        later, _ = turned_each(batch.later, moves, symmetries, self._layout)
        worth = targets(batch, self._of_moves(self._online_values, later), self._of_moves(self._target_values, later))
        arrays = {"observations": observations, "moves": moves, "worth": worth}
        self._steps({name: array.reshape(minibatches, _MINIBATCH, *array.shape[1:]) for name, array in arrays.items()})
        self._updates += minibatches
        if self._updates >= _TARGET_EVERY:
            self._copy()

    @staticmethod
    def _of_moves(call: Call, observations: Observations) -> Floats:
        return np.asarray(call(observations)[0])

    def _copy(self) -> None:
        self._updates = 0
        Weights(self._target).set(Weights(self._model).get())


def _loss(outputs: Any, batch: Mapping[str, Any]) -> Any:
    values, boards = outputs
    return ops.mean(
        q_loss(values, batch["moves"], batch["worth"]) + _VALUE_WEIGHT * _huber(boards[:, 0] - batch["worth"])
    )
