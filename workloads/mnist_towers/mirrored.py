"""The same with tf.distribute.MirroredStrategy: TensorFlow copies the variables and adds the gradients up."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from workloads.common.digits import Digits
from workloads.common.weights import Arrays, Weights
from workloads.mnist_towers.devices import Devices
from workloads.mnist_towers.network import build, losses
from workloads.mnist_towers.settings import Settings
from workloads.mnist_towers.split import sizes

__all__ = ["Mirrored"]


class Mirrored:
    """One network with a copy on each device. Keras' optimizer adds the copies' gradients up."""

    def __init__(self, settings: Settings, devices: Devices, pixels: int) -> None:
        """Raises ValueError if a tower would get no sample."""
        self._devices = devices
        self._sizes = sizes(settings.batch, settings.parts or (1,) * len(devices.towers))
        keras.utils.set_random_seed(settings.seed)
        # TensorFlow's own choice for CPU devices is a ring; in a process with several strategies, as in the tests, it
        # was seen to end in "Function was cancelled before it was started". One device that adds up needs no ring.
        adding = None if "GPU" in devices.towers[0] else tf.distribute.ReductionToOneDevice()
        self._strategy = tf.distribute.MirroredStrategy(devices.towers, cross_device_ops=adding)
        with self._strategy.scope():
            self._model = build(pixels)
            self._optimizer = keras.optimizers.SGD(settings.learning_rate)
            self._optimizer.build(self._model.trainable_variables)
        self.weights = Weights(self._model)
        self._descend = tf.function(self._step, reduce_retracing=True)

    def step(self, batch: Digits) -> float:
        """Take a step down the gradient of the batch; return its mean loss before the step."""
        return float(self._first(self._descend(*self._parts(batch))))

    def score(self, test: Digits) -> float:
        """Return which part of the tested digits it knows."""
        with tf.device(self._devices.towers[0]):
            logits = self._model(test.images, training=False).numpy()
        return float((logits.argmax(axis=1) == test.labels).mean())

    def restore(self, arrays: Arrays) -> None:
        """Go on from these weights. Raises ValueError if they are of another network."""
        self.weights.set(arrays)

    def where(self) -> dict[str, tuple[str, ...]]:
        """Return by name on which devices a variable has copies."""
        variables = zip(self.weights.names, self._model.weights, strict=True)
        return {
            name: tuple(copy.device for copy in self._strategy.experimental_local_results(variable.value))
            for name, variable in variables
        }

    def _parts(self, batch: Digits) -> tuple[Any, Any]:
        """Return images and labels with each tower's part on its device."""
        ends = np.cumsum(self._sizes)

        def part_of(array: Any) -> Any:
            def mine(context: Any) -> Any:
                tower = context.replica_id_in_sync_group
                with tf.device(self._devices.towers[tower]):
                    return tf.constant(array[ends[tower] - self._sizes[tower] : ends[tower]])

            return self._strategy.experimental_distribute_values_from_function(mine)

        return part_of(batch.images), part_of(batch.labels)

    def _loss_and_gradients(self, images: Any, labels: Any) -> tuple[Any, list[Any]]:
        """Return a tower's part of the mean loss of the whole batch, and the gradients of it: the sums are the means.

        A mean of each tower's own samples would come out as many times too large as there are towers.
        """
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses(self._model, images, labels)) / sum(self._sizes)
        return loss, tape.gradient(loss, self._model.trainable_variables)

    def _step(self, images: Any, labels: Any) -> Any:
        def on_each(images: Any, labels: Any) -> Any:
            loss, gradients = self._loss_and_gradients(images, labels)
            self._optimizer.apply(gradients, self._model.trainable_variables)
            return tf.distribute.get_replica_context().all_reduce("SUM", loss)

        return self._strategy.run(on_each, (images, labels))

    def _first(self, value: Any) -> Any:
        return self._strategy.experimental_local_results(value)[0]
