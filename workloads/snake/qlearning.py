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
from numpy.typing import NDArray

from workloads.common.compiled import steps_on_minibatches
from workloads.common.weights import Weights
from workloads.snake.algorithm import Algorithm
from workloads.snake.exploring import Explored
from workloads.snake.networks import build, judge, taken
from workloads.snake.replay import Replay, Transitions, transitions
from workloads.snake.rollout import Floats
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, turned

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
    error = ops.abs(ops.sum(values * made, axis=1) - worth)
    return ops.where(error < 1.0, 0.5 * ops.square(error), error - 0.5)


def targets(batch: Transitions, online: Floats, target: Floats) -> Floats:
    """Return what each move is worth [n]: its return, and later the move that `online` [n, 4] finds best there.

    How good that one is, `target` [n, 4] says: who is both asked which is best and how good takes luck for skill.
    """
    best: Floats = target[np.arange(len(target)), online.argmax(axis=1)]
    return batch.returns + batch.worth * best


class QLearning(Algorithm):
    """Teaches `model` from a memory of what was explored; the memory is not saved, and the target network neither."""

    def __init__(self, model: keras.Model, settings: Settings, random: np.random.Generator) -> None:
        self._model, self._random, self._discount = model, random, settings.discount
        optimizer = keras.optimizers.Adam(settings.learning_rate, global_clipnorm=_GRADIENT_NORM)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer=optimizer, jit_compile=model.jit_compile)
        self._steps = steps_on_minibatches(model, lambda batch: taken(model, batch["frames"], batch["hunger"]), _loss)
        self._target = build(settings.network, settings.seen)
        self._copy()
        self._memory = Replay(_CAPACITY)

    def learn(self, explored: Explored, done: float) -> bool:
        """Remember what was explored, and learn from some of all that is remembered."""
        del done
        self._memory.add(transitions(explored, self._discount))
        if self._memory.size >= _ENOUGH:
            for _ in range(max(1, _LEARNT_OFTEN * explored.steps // _MINIBATCH)):
                self._update(self._memory.draw(_MINIBATCH, self._random))
        return False

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Go on with a network that was loaded, of which the target network begins as a copy."""
        self._copy()
        return super().restore(state)

    def _update(self, batch: Transitions) -> None:
        """Learn once from transitions, all turned or mirrored in one way, drawn at random."""
        symmetry = int(self._random.integers(SYMMETRIES))
        frames, moves = turned(batch.frames, batch.actions.astype(np.int64), symmetry)
        later, _ = turned(batch.later, moves, symmetry)
        worth = targets(
            batch, *(judge(model, later, batch.later_hunger).logits for model in (self._model, self._target))
        )
        arrays = {"frames": frames, "hunger": batch.hunger, "moves": moves, "worth": worth}
        self._steps({name: array[None] for name, array in arrays.items()})
        self._updates += 1
        if self._updates % _TARGET_EVERY == 0:
            self._copy()

    def _copy(self) -> None:
        self._updates = 0
        Weights(self._target).set(Weights(self._model).get())


def _loss(outputs: Any, batch: Mapping[str, Any]) -> Any:
    values, boards = outputs
    of_moves = q_loss(values, batch["moves"], batch["worth"])
    return ops.mean(of_moves + _VALUE_WEIGHT * ops.square(boards[:, 0] - batch["worth"]))
