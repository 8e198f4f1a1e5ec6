"""The two tasks: their data, their networks, and how good a network is. Knows no actor and no round."""

from typing import Final

import keras
import msgspec
import numpy as np
from keras import layers
from numpy.typing import NDArray

from workloads.averaging.settings import Task
from workloads.common import digits

__all__ = ["INTERCEPT", "SLOPE", "Data", "build", "load", "loss_of", "score"]

SLOPE: Final = 0.1
INTERCEPT: Final = 0.3
_POINTS: Final = 1000
_HIDDEN: Final = 32


class Data(msgspec.Struct, frozen=True, eq=False):
    """What to learn from, inputs float32 [n, features] and targets [n], and what to test with (of a line: nothing)."""

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32] | NDArray[np.int64]
    test_inputs: NDArray[np.float32]
    test_targets: NDArray[np.float32] | NDArray[np.int64]


def load(task: Task, seed: int) -> Data:
    """Return the data, the same in every process."""
    if task == "digits":
        train, test = digits.load()
        return Data(train.images, train.labels, test.images, test.labels)
    x = np.random.default_rng(seed).random((_POINTS, 1), dtype=np.float32)
    return Data(x, SLOPE * x[:, 0] + INTERCEPT, x[:0], x[:0, 0])


def build(task: Task, seed: int) -> keras.Model:
    """Return a new network, with the same weights for the same seed: inputs [n, features] -> outputs [n, 1 or 10]."""
    keras.utils.set_random_seed(seed)
    if task == "digits":
        body = [layers.Dense(_HIDDEN, activation="relu", name="hidden"), layers.Dense(10, name="logits")]
        return keras.Sequential([keras.Input((digits.PIXELS,)), *body], name=task)
    return keras.Sequential([keras.Input((1,)), layers.Dense(1, name="line")], name=task)


def loss_of(task: Task) -> keras.losses.Loss:
    """Return the mean over a batch of what is made small: cross-entropy of digits, squared distance of a line."""
    if task == "digits":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.MeanSquaredError()


def score(task: Task, model: keras.Model, data: Data) -> float:
    """Return how good the network is, at best 1.

    Of digits the part of the tested ones that it knows; of a line 1 less the distance of its slope or its intercept
    from the truth, whichever is farther off.
    """
    if task == "digits":
        logits = np.asarray(model.predict_on_batch(data.test_inputs))
        return float((logits.argmax(axis=1) == data.test_targets).mean())
    slope, intercept = (float(weight.numpy().ravel()[0]) for weight in model.weights)
    return 1 - max(abs(slope - SLOPE), abs(intercept - INTERCEPT))
