"""A network and its data in one process: gradients, steps of gradient descent, and an actor's part of a round.

Learner and actors both have one. TensorFlow differentiates: Keras has no gradients that name no backend.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.averaging import tasks
from workloads.averaging.settings import Settings
from workloads.averaging.share import Share
from workloads.common.rounds import Contribution
from workloads.common.weights import Vector, Weights

__all__ = ["Training"]


class Training:
    """What `settings` say is to be learnt."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.data = tasks.load(settings.task, settings.seed)
        self.model = tasks.build(settings.task, settings.seed)
        self.weights = Weights(self.model)
        self._loss = tasks.loss_of(settings.task)
        self._optimizer = keras.optimizers.SGD(settings.learning_rate)
        self._optimizer.build(self.model.trainable_variables)
        self._differentiate = tf.function(self._gradients_of, reduce_retracing=True)
        self._descend = tf.function(self._step_on, reduce_retracing=True)

    @property
    def score(self) -> float:
        """How good the network is, at best 1: see tasks.score."""
        return tasks.score(self._settings.task, self.model, self.data)

    def gradient(self, which: NDArray[np.int64]) -> tuple[Vector, float]:
        """Return the gradient [size] of the mean loss of the samples [n] at the present weights, and that loss."""
        loss, gradients = self._differentiate(self.data.inputs[which], self.data.targets[which])
        return np.concatenate([gradient.numpy().ravel() for gradient in gradients]), float(loss)

    def step(self, which: NDArray[np.int64]) -> float:
        """Take a step down the gradient at the samples [n]; return their mean loss before it."""
        return float(self._descend(self.data.inputs[which], self.data.targets[which]))

    def apply(self, gradient: Vector) -> None:
        """Take a step down a gradient [size]. Raises ValueError if it has another shape."""
        parts = self.weights.split(gradient)
        self._optimizer.apply([tf.constant(part) for part in parts.values()], self.model.trainable_variables)

    def contribution(self, share: Share, number: int) -> Contribution:
        """Return an actor's part of round `number`, counted from 1, at the weights that the network has.

        With the scheme `weights` the network has others afterwards.
        """
        if self._settings.scheme == "gradients":
            which = share.at(number - 1)
            gradient, loss = self.gradient(which)
            return Contribution(gradient, len(which), loss)
        steps = self._settings.local_steps
        batches = [share.at((number - 1) * steps + step) for step in range(steps)]
        losses = [self.step(which) for which in batches]
        sizes = [len(which) for which in batches]
        return Contribution(self.weights.get_flat(), sum(sizes), float(np.average(losses, weights=sizes)))

    def take(self, average: Vector) -> None:
        """Go on from the average [size] of a round. Raises ValueError if it has another shape."""
        if self._settings.scheme == "gradients":
            self.apply(average)
        else:
            self.weights.set_flat(average)

    def _gradients_of(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = self._loss(targets, self.model(inputs, training=True))
        return loss, tape.gradient(loss, self.model.trainable_variables)

    def _step_on(self, inputs: Any, targets: Any) -> Any:
        loss, gradients = self._gradients_of(inputs, targets)
        self._optimizer.apply(gradients, self.model.trainable_variables)
        return loss
