"""Steps in one compiled call are the steps of a plain loop; a compiled call has the weights that the model has then."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from numpy.typing import NDArray

from workloads.common.compiled import compiled_call, steps_on_minibatches

MINIBATCHES, SIZE = 5, 7


def model(jit_compile: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    one, other = keras.Input((3,)), keras.Input((2,), dtype="uint8")
    x = layers.Dense(4, activation="tanh")(layers.Concatenate()([one, ops.cast(other, "float32")]))
    made = keras.Model([one, other], [layers.Dense(2)(x), layers.Dense(1)(x)])
    optimizer = keras.optimizers.Adam(0.05, global_clipnorm=0.5)
    optimizer.build(made.trainable_variables)
    made.compile(optimizer=optimizer, jit_compile=jit_compile)
    return made


def samples() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(2)
    return {
        "one": random.normal(size=(MINIBATCHES, SIZE, 3)).astype(np.float32),
        "other": random.integers(5, size=(MINIBATCHES, SIZE, 2)).astype(np.uint8),
        "wanted": random.normal(size=(MINIBATCHES, SIZE, 2)).astype(np.float32),
        "weight": np.linspace(0.1, 2.0, MINIBATCHES, dtype=np.float32),
    }


def inputs(minibatch: Any) -> Any:
    return [minibatch["one"] + 1.0, minibatch["other"]]


def loss(outputs: Any, minibatch: Any) -> Any:
    return minibatch["weight"] * ops.mean(ops.square(outputs[0] - minibatch["wanted"])) + ops.mean(outputs[1])


def one_after_the_other(made: keras.Model, arrays: dict[str, NDArray[Any]]) -> None:
    """The same without anything compiled."""
    for at in range(MINIBATCHES):
        minibatch = {name: tf.constant(array[at]) for name, array in arrays.items()}
        with tf.GradientTape() as tape:
            value = loss(made(inputs(minibatch), training=True), minibatch)
        made.optimizer.apply(tape.gradient(value, made.trainable_variables), made.trainable_variables)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_steps_on_minibatches_are_one_step_on_each_in_their_order(jit_compile: bool) -> None:
    together, plain = model(jit_compile), model(jit_compile=False)
    steps = steps_on_minibatches(together, inputs, loss)
    for done in (1, 2):
        steps(samples())
        one_after_the_other(plain, samples())
        assert int(together.optimizer.iterations) == int(plain.optimizer.iterations) == done * MINIBATCHES
        for one, other in zip(together.variables, plain.variables, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)


def test_steps_are_taken_at_the_rate_that_the_optimizer_has_then() -> None:
    made = model(jit_compile=True)
    steps = steps_on_minibatches(made, inputs, loss)
    steps(samples())
    before = made.get_weights()
    made.optimizer.learning_rate = 0.0
    steps(samples())
    for one, other in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_compiled_call_has_the_weights_that_the_model_has_then(jit_compile: bool) -> None:
    made = model(jit_compile)
    call, taken = compiled_call(made), [samples()["one"][0], samples()["other"][0]]
    for _ in range(2):
        for found, expected in zip(call(taken), made(taken), strict=True):
            np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4)  # of any CPU
        made.set_weights([array * 3 + 1 for array in made.get_weights()])
