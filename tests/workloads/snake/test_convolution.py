"""The convolution of one tile: weights, results and gradients as Keras's own, and what it refuses."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from workloads.snake.convolution import OneTileConvolution

CHANNELS, FILTERS = 6, 5


def both() -> tuple[OneTileConvolution, layers.Conv2D]:
    keras.utils.set_random_seed(0)
    one = OneTileConvolution(FILTERS, 3, activation="relu", bias_initializer="normal")
    other = layers.Conv2D(FILTERS, 3, activation="relu")
    for layer in (one, other):
        layer.build((None, 7, 7, CHANNELS))
    other.set_weights(one.get_weights())
    return one, other


def test_it_gives_what_a_convolution_gives() -> None:
    one, other = both()
    random = np.random.default_rng(0)
    for pictures in (1, 4, 33):
        x = random.normal(size=(pictures, 7, 7, CHANNELS)).astype(np.float32)
        expected = ops.convert_to_numpy(other(x))
        assert ops.convert_to_numpy(one(x)).shape == expected.shape == (pictures, 5, 5, FILTERS)
        np.testing.assert_allclose(ops.convert_to_numpy(one(x)), expected, atol=2e-4 * expected.std())


def test_it_learns_what_a_convolution_learns() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 7, 7, CHANNELS)).astype(np.float32)
    y = random.normal(size=(16, 5, 5, FILTERS)).astype(np.float32)
    after = []
    for layer in both():
        model = keras.Sequential([keras.Input((7, 7, CHANNELS)), layer])
        model.compile(keras.optimizers.SGD(1.0), loss="mse")
        before = layer.get_weights()
        model.train_on_batch(x, y)
        after.append([new - old for new, old in zip(layer.get_weights(), before, strict=True)])
    for one, other in zip(*after, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3 * other.std())


@pytest.mark.parametrize(
    ("side", "options"),
    [
        (8, {"kernel_size": 3}),
        (7, {"kernel_size": 4}),
        (7, {"kernel_size": 3, "padding": "same"}),
        (7, {"kernel_size": 3, "strides": 2}),
    ],
)
def test_what_is_no_such_tile_is_refused(side: int, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="7 x 7"):
        OneTileConvolution(FILTERS, **options).build((None, side, side, CHANNELS))
