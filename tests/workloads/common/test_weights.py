"""Weights of a model by name and as one vector, with two models in one process."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from workloads.common.weights import Weights


def model(units: int = 3, seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((2,)), layers.Dense(units, name="hidden"), layers.BatchNormalization(name="norm")]
    )


class Pair(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(1, name="same"), layers.Dense(1, name="same")

    def call(self, inputs: Any) -> Any:
        return self.first(inputs) + self.second(inputs)


def test_all_weights_come_by_name_also_those_that_are_not_trained() -> None:
    shapes = {name: array.shape for name, array in Weights(model()).get().items()}
    assert shapes == {
        "hidden/kernel": (2, 3),
        "hidden/bias": (3,),
        "norm/gamma": (3,),
        "norm/beta": (3,),
        "norm/moving_mean": (3,),
        "norm/moving_variance": (3,),
    }


def test_the_vector_is_the_named_arrays_in_order() -> None:
    weights = Weights(model())
    vector = weights.get_flat()
    assert vector.shape == (weights.size,) == (21,)
    np.testing.assert_array_equal(vector, np.concatenate([array.ravel() for array in weights.get().values()]))
    assert {name: part.shape for name, part in weights.split(vector).items()} == {
        name: array.shape for name, array in weights.get().items()
    }


def test_two_models_of_one_process_have_one_set_of_names_and_each_its_own_weights() -> None:
    one, other = Weights(model(seed=1)), Weights(model(seed=2))
    assert one.names == other.names
    before = one.get_flat()
    other.set_flat(np.arange(21, dtype=np.float32))
    np.testing.assert_array_equal(one.get_flat(), before)
    other.set(one.get())
    np.testing.assert_array_equal(other.get_flat(), before)


def test_two_weights_of_one_name_in_one_model_are_two() -> None:
    pair = Pair()
    pair(np.zeros((1, 2), np.float32))
    weights = Weights(pair)
    assert weights.names == ("same/kernel", "same/bias", "same/kernel#2", "same/bias#2")
    weights.set_flat(np.arange(6, dtype=np.float32))
    assert float(pair.second.bias.numpy()[0]) == 5


def test_a_compiled_function_is_not_traced_anew_however_often_weights_are_set() -> None:
    network = model()
    weights = Weights(network)
    compiled = tf.function(network)
    inputs = tf.ones((1, 2))
    for number in range(5):
        weights.set_flat(np.full(21, number, np.float32))
        weights.get_flat()
        compiled(inputs)
    assert compiled.experimental_get_tracing_count() == 1
    assert float(compiled(inputs)[0, 0]) == pytest.approx(float(network(inputs)[0, 0]))


def test_what_was_got_stays_when_the_model_goes_on() -> None:
    weights = Weights(model())
    named, vector = weights.get(), weights.get_flat()
    kernel, copy = named["hidden/kernel"].copy(), vector.copy()
    weights.set_flat(vector + 1)
    np.testing.assert_array_equal(named["hidden/kernel"], kernel)
    np.testing.assert_array_equal(vector, copy)


def test_weights_of_another_network_are_refused_and_change_nothing() -> None:
    weights = Weights(model())
    before = weights.get_flat()
    for arrays in (Weights(model(units=4)).get(), {"hidden/kernel": np.ones((2, 3), np.float32)}):
        with pytest.raises(ValueError, match="not of the network 'sequential"):
            weights.set(arrays)
    with pytest.raises(ValueError, match="is no vector of the 21 weights"):
        weights.set_flat(np.zeros(20, np.float32))
    np.testing.assert_array_equal(weights.get_flat(), before)
