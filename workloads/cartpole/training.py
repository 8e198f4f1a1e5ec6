"""Deep Q-learning in one process: a network, its target network, and steps of Adam on what a memory holds.

Double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461) with the Huber loss. TensorFlow differentiates: Keras has
no gradients that name no backend.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from workloads.cartpole.memory import Transitions
from workloads.cartpole.network import build
from workloads.cartpole.settings import Settings
from workloads.common.weights import Weights

__all__ = ["Training"]


class Training:
    """A network that learns as `settings` say; `weights` are its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._model, self._target = build(settings.seed), build(settings.seed)
        self.weights = Weights(self._model)
        self._optimizer = keras.optimizers.Adam(settings.learning_rate)
        self._optimizer.build(self._model.trainable_variables)
        self._loss = keras.losses.Huber()
        self._learn = tf.function(self._steps_on, reduce_retracing=True)

    def learn(self, batches: Transitions) -> float:
        """Take one step of Adam for each batch of [steps, batch]; return their mean loss."""
        return float(self._learn(batches.arrays()))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all that learning goes on from, by name: both networks, and Adam's moments and count."""
        return {name: variable.numpy() for name, variable in self._variables().items()}

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what state() returned. Raises ValueError, and changes nothing, if something does not fit."""
        variables = self._variables()
        for name, variable in variables.items():
            if name not in arrays or arrays[name].shape != variable.shape:
                raise ValueError(f"this is no state of the network: {name} is missing or has another shape")
        for name, variable in variables.items():
            variable.assign(arrays[name])

    def _variables(self) -> dict[str, keras.Variable]:
        parts = {"network": self._model, "target": self._target, "adam": self._optimizer}
        return {f"{part}/{index}": one for part, of in parts.items() for index, one in enumerate(of.variables)}

    def _steps_on(self, batches: dict[str, Any]) -> Any:
        steps = tf.shape(batches["actions"])[0]
        total = tf.zeros(())
        for step in tf.range(steps):
            total += self._step_on({name: array[step] for name, array in batches.items()})
            if self._optimizer.iterations % self._settings.target_every == 0:
                for kept, present in zip(self._target.variables, self._model.variables, strict=True):
                    kept.assign(present)
        return total / tf.cast(steps, tf.float32)

    def _step_on(self, batch: dict[str, Any]) -> Any:
        following = batch["following"]
        best = tf.argmax(self._model(following), axis=1)
        later = tf.gather(self._target(following), best, axis=1, batch_dims=1)
        goal = batch["rewards"] + self._settings.discount * tf.where(batch["fallen"], 0.0, later)
        with tf.GradientTape() as tape:
            worths = self._model(batch["observations"])
            loss = self._loss(goal, tf.gather(worths, tf.cast(batch["actions"], tf.int32), axis=1, batch_dims=1))
        self._optimizer.apply(tape.gradient(loss, self._model.trainable_variables), self._model.trainable_variables)
        return loss
