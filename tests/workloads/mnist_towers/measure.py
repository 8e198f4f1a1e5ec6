"""One process with four logical CPU devices, in which every style is tried; prints what it measured as JSON.

`cases`: what every style computes, and where; `curves`: the losses of some steps, and what TensorFlow refuses.

TensorFlow's devices are settled once in a process, so that this cannot be done in the tests' own.
"""

import json
import sys
from typing import Any, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.common import digits
from workloads.common.digits import Digits
from workloads.common.weights import Weights
from workloads.mnist_towers.batches import Batches
from workloads.mnist_towers.devices import Devices, open_devices
from workloads.mnist_towers.mirrored import Mirrored
from workloads.mnist_towers.network import build
from workloads.mnist_towers.settings import Settings, Style, Variables
from workloads.mnist_towers.towers import Towers

BATCH = 30
STEPS = 12
RATE = 0.1
CASES: dict[str, tuple[Style, Variables, str]] = {
    "towers, equal": ("towers", "cpu", "1,1"),
    "towers, unequal": ("towers", "cpu", "4,1"),
    "towers, three": ("towers", "cpu", "3,2,1"),
    "towers, round-robin": ("towers", "round-robin", "4,1"),
    "towers, least-loaded": ("towers", "least-loaded", "4,1"),
    "towers, mirrored": ("towers", "mirrored", "4,1"),
    "mirrored, equal": ("mirrored", "mirrored", "1,1"),
    "mirrored, unequal": ("mirrored", "mirrored", "4,1"),
    "mirrored, three": ("mirrored", "mirrored", "3,2,1"),
}


def single(weights: dict[str, NDArray[Any]], batch: Digits) -> NDArray[Any]:
    """Return the gradient of the whole batch's mean loss, computed on one device by a network of its own."""
    with tf.device("/device:CPU:0"):
        model = build(digits.PIXELS)
        Weights(model).set(weights)
        variables = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            logits = tf.nn.log_softmax(model(tf.constant(batch.images), training=True))
            loss = -tf.reduce_mean(tf.gather(logits, batch.labels, axis=1, batch_dims=1))
        return np.concatenate([gradient.numpy().ravel() for gradient in tape.gradient(loss, variables)])


def apart(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def gradient_of(style: Towers | Mirrored, batch: Digits) -> tuple[NDArray[Any], float]:
    """Return the gradient of the batch's mean loss, and that loss, of all towers together."""
    if isinstance(style, Towers):
        gradients, loss = style.averaged(batch)
    else:

        def on_each(images: Any, labels: Any) -> Any:
            loss, gradients = style._loss_and_gradients(images, labels)
            return tf.distribute.get_replica_context().all_reduce("SUM", [loss, *gradients])

        summed = tf.function(lambda *parts: style._strategy.run(on_each, parts))(*style._parts(batch))
        loss, *gradients = (style._first(one) for one in summed)
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients]), float(loss)


def index(device: str) -> str:
    return device.rpartition("/device:")[2]


def results_of(style: Towers | Mirrored, batch: Digits) -> list[list[str]]:
    """Return for each tower the devices of its loss and gradients; of MirroredStrategy those of its matrix products.

    What comes out of the one function of all its devices is on the host, so that its operations are looked at.
    """
    if isinstance(style, Towers):
        return [[index(each.device) for each in (loss, *gradients)] for loss, gradients in style.of_each(batch)]
    graph = style._descend.get_concrete_function(*style._parts(batch)).graph
    products = [index(each.device) for each in graph.get_operations() if each.type in {"MatMul", "Conv2D"}]
    return [[device for device in products if device == tower] for tower in sorted(set(products))]


def measured(case: str, devices: Devices, batch: Digits) -> dict[str, object]:
    of, variables, split = CASES[case]
    settings = Settings(style=of, variables=variables, split=split, batch=BATCH, learning_rate=RATE, seed=5)
    used = Devices(devices.host, devices.towers[: len(settings.parts)])
    style = (Towers if of == "towers" else Mirrored)(settings, used, digits.PIXELS)
    before = style.weights.get_flat()
    expected = single(style.weights.get(), batch)
    gradient, loss = gradient_of(style, batch)
    told = style.step(batch)
    return {
        "gradient": apart(gradient, expected),
        "step": apart(style.weights.get_flat() - before, -RATE * expected),
        "losses": [loss, told],
        "where": {name: [index(device) for device in found] for name, found in style.where().items()},
        "results": results_of(style, batch),
        "bytes": {name: array.nbytes for name, array in style.weights.get().items()},
    }


def losses_of(of: Style, devices: Devices, train: Digits) -> list[float]:
    """Return the losses of a few steps, from the beginning."""
    settings = Settings(style=of, split="4,1", batch=BATCH, seed=5)
    style = (Towers if of == "towers" else Mirrored)(settings, Devices(devices.host, devices.towers[:2]), digits.PIXELS)
    batches = Batches(len(train.labels), BATCH, settings.seed)
    taken = [batches.at(step) for step in range(STEPS)]
    return [style.step(Digits(train.images[which], train.labels[which])) for which in taken]


def misplaced() -> str:
    """Return what TensorFlow says of a device that is not there, without soft placement."""
    try:
        with tf.device("/device:GPU:0"):
            tf.constant(1.0) + tf.constant(2.0)
    except (tf.errors.InvalidArgumentError, RuntimeError) as error:
        return type(error).__name__
    return ""


def cases(devices: Devices, train: Digits) -> dict[str, object]:
    batch = Digits(train.images[:BATCH], train.labels[:BATCH])
    return {case: measured(case, devices, batch) for case in CASES}


def curves(devices: Devices, train: Digits) -> dict[str, object]:
    return {
        "losses": {of: [losses_of(of, devices, train) for _ in range(2)] for of in get_args(Style)},
        "devices": [index(device) for device in (devices.host, *devices.towers)],
        "soft": tf.config.get_soft_device_placement(),
        "misplaced": misplaced(),
    }


def main() -> None:
    devices = open_devices(Settings(towers=3, soft_placement=False))
    train, _ = digits.load()
    print(json.dumps({"cases": cases, "curves": curves}[sys.argv[1]](devices, train)))


if __name__ == "__main__":
    main()
