"""Data parallelism written out: a tower on each device, and the mean of their gradients, weighted by their samples."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from workloads.common.digits import Digits
from workloads.common.weights import Arrays, Weights
from workloads.mnist_towers.devices import Devices, Placer, RoundRobin, placed_by, placer_of
from workloads.mnist_towers.network import build, losses
from workloads.mnist_towers.settings import Settings
from workloads.mnist_towers.split import sizes

__all__ = ["Towers"]


class Towers:
    """One network on several devices: its variables are shared by the towers, or each tower has a copy of them."""

    def __init__(self, settings: Settings, devices: Devices, pixels: int) -> None:
        """Raises ValueError if a tower would get no sample."""
        self._devices = devices
        self._rate = settings.learning_rate
        self._sizes = sizes(settings.batch, settings.parts or (1,) * len(devices.towers))
        keras.utils.set_random_seed(settings.seed)
        self._models = self._built(settings, pixels)
        self.weights = Weights(self._models[0])
        self.restore(self.weights.get())
        copies = {id(model): tf.function(_gradient_of(model), reduce_retracing=True) for model in self._models}
        self._gradient_of = [copies[id(model)] for model in self._models]

    def step(self, batch: Digits) -> float:
        """Take a step down the gradient of the batch; return its mean loss before the step."""
        gradients, loss = self.averaged(batch)
        for model in {id(model): model for model in self._models}.values():
            for variable, gradient in zip(_variables(model), gradients, strict=True):
                with tf.device(variable.device):
                    variable.assign_sub(self._rate * gradient)
        return loss

    def averaged(self, batch: Digits) -> tuple[list[Any], float]:
        """Return the mean of the towers' gradients, on the host, and the mean loss.

        A tower's gradient is the mean of its own samples, so that it counts as many times as it has samples: the plain
        mean of unequal towers would be another gradient than that of the batch.
        """
        told = self.of_each(batch)
        part = [size / sum(self._sizes) for size in self._sizes]
        with tf.device(self._devices.host):
            each = zip(*(gradients for _, gradients in told), strict=True)
            mean = [tf.add_n([w * g for w, g in zip(part, of_one, strict=True)]) for of_one in each]
        return mean, float(np.dot(part, [float(loss) for loss, _ in told]))

    def of_each(self, batch: Digits) -> list[tuple[Any, list[Any]]]:
        """Return for each tower the mean loss of its samples and the gradient of that, on the tower's device."""
        ends = np.cumsum(self._sizes)
        told = []
        for device, compute, end, size in zip(self._devices.towers, self._gradient_of, ends, self._sizes, strict=True):
            mine = slice(end - size, end)
            with tf.device(device):  # a function that is called here runs here, and so are its results
                told.append(compute(tf.constant(batch.images[mine]), tf.constant(batch.labels[mine])))
        return told

    def score(self, test: Digits) -> float:
        """Return which part of the tested digits it knows."""
        with tf.device(self._devices.towers[0]):
            logits = self._models[0](test.images, training=False).numpy()
        return float((logits.argmax(axis=1) == test.labels).mean())

    def restore(self, arrays: Arrays) -> None:
        """Go on from these weights. Raises ValueError if they are of another network."""
        for model in self._models:
            Weights(model).set(arrays)

    def where(self) -> dict[str, tuple[str, ...]]:
        """Return by name on which devices a variable is, and on which the gradient of each tower comes out."""
        copies = [dict(zip(self.weights.names, _variables(model), strict=True)) for model in self._models]
        found = {name: tuple(dict.fromkeys(copy[name].device for copy in copies)) for name in self.weights.names}
        pixels = self._models[0].input_shape[1]
        number = sum(self._sizes)
        nothing = Digits(np.zeros((number, pixels), np.float32), np.zeros(number, np.int64))
        return found | {"gradients": tuple(gradients[0].device for _, gradients in self.of_each(nothing))}

    def _built(self, settings: Settings, pixels: int) -> list[keras.Model]:
        """Return the network of each tower: one for all, or one on each."""
        if settings.variables == "mirrored":
            return [self._built_on(RoundRobin([device]), pixels) for device in self._devices.towers]
        shared = self._built_on(placer_of(settings.variables, self._devices), pixels)
        return [shared] * len(self._devices.towers)

    @staticmethod
    def _built_on(placer: Placer, pixels: int) -> keras.Model:
        with placed_by(placer):
            return build(pixels)


def _variables(model: keras.Model) -> list[Any]:
    return [variable.value for variable in model.trainable_variables]


def _gradient_of(model: keras.Model) -> Any:
    def compute(images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses(model, images, labels))
        return loss, tape.gradient(loss, _variables(model))

    return compute
