"""Calls of a model, and steps of its optimizer on several minibatches, each compiled as a whole, by any Keras backend.

What Keras does around each `predict_on_batch` and `train_on_batch` takes longer than a small network on a CPU does.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

__all__ = ["Call", "Loss", "Steps", "compiled_call", "steps_on_minibatches"]

Arrays = Mapping[str, Any]

Inputs = Callable[[Arrays], Any]
"""Arrays of one minibatch by name -> what the model takes, by keras.ops."""

Loss = Callable[[Any, Arrays], Any]
"""What the model returned, and the minibatch -> the loss, a scalar, by keras.ops."""

Steps = Callable[[Arrays], None]
"""Arrays [minibatches, ...] by name: takes one step on each minibatch, in order."""


Call = Callable[[Any], Any]
"""What the model takes, as NumPy arrays -> what it returns, as arrays that NumPy understands."""


def compiled_call(model: keras.Model) -> Call:
    """Return what calls `model`, with the weights that it has then. It is compiled for each shape of its inputs."""
    return _CALL[keras.backend.backend()](model)


def steps_on_minibatches(model: keras.Model, inputs: Inputs, loss: Loss) -> Steps:
    """Return what takes steps of `model.optimizer`; `inputs` makes what the model takes of the arrays of a minibatch.

    With TensorFlow and JAX it is compiled as a whole for each shape of the arrays; PyTorch goes step by step.
    """
    return _MAKE[keras.backend.backend()](model, inputs, loss)


def _call_tensorflow(model: keras.Model) -> Call:
    import tensorflow as tf

    def call(*inputs: Any) -> Any:
        return model(keras.tree.pack_sequence_as(model.input, inputs), training=False)

    compiled = tf.function(call, jit_compile=bool(model.jit_compile), autograph=False)
    of_shapes: dict[Any, Any] = {}  # TensorFlow takes as long to find the right one as to run a small network

    def run(inputs: Any) -> Any:
        arrays = keras.tree.flatten(inputs)
        shapes = tuple((array.shape, array.dtype) for array in arrays)
        if shapes not in of_shapes:
            of_shapes[shapes] = compiled.get_concrete_function(*arrays)
        return of_shapes[shapes](*map(tf.convert_to_tensor, arrays))

    return run


def _call_jax(model: keras.Model) -> Call:
    import jax

    call = jax.jit(partial(model.stateless_call, training=False))

    def run(inputs: Any) -> Any:
        weights = ([one.value for one in kind] for kind in (model.trainable_variables, model.non_trainable_variables))
        return call(*weights, inputs)[0]

    return run


def _call_torch(model: keras.Model) -> Call:
    import torch

    def run(inputs: Any) -> Any:
        with torch.no_grad():
            return [ops.convert_to_numpy(one) for one in model(inputs, training=False)]

    return run


def _tensorflow(model: keras.Model, inputs: Inputs, loss: Loss) -> Steps:
    import tensorflow as tf

    @tf.function(jit_compile=bool(model.jit_compile))  # type: ignore[untyped-decorator]
    def steps(arrays: Arrays) -> None:
        for at in tf.range(tf.shape(next(iter(arrays.values())))[0]):
            minibatch = {name: array[at] for name, array in arrays.items()}
            with tf.GradientTape() as tape:
                value = loss(model(inputs(minibatch), training=True), minibatch)
            model.optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)

    def run(arrays: Arrays) -> None:
        steps({name: tf.convert_to_tensor(array) for name, array in arrays.items()})

    return run


def _jax(model: keras.Model, inputs: Inputs, loss: Loss) -> Steps:
    import jax

    def value(trained: Any, fixed: Any, minibatch: Arrays) -> Any:
        outputs, _ = model.stateless_call(trained, fixed, inputs(minibatch), training=True)
        return loss(outputs, minibatch)

    @jax.jit  # type: ignore[untyped-decorator]
    def steps(trained: Any, fixed: Any, state: Any, arrays: Any) -> Any:
        def one(carried: Any, minibatch: Any) -> Any:
            trained, state = carried
            gradients = jax.grad(value)(trained, fixed, minibatch)
            return model.optimizer.stateless_apply(state, gradients, trained), None

        return jax.lax.scan(one, (trained, state), arrays)[0]

    def run(arrays: Arrays) -> None:
        learnt = (model.trainable_variables, model.optimizer.variables)
        trained, fixed, state = (
            [one.value for one in variables] for variables in (learnt[0], model.non_trainable_variables, learnt[1])
        )
        for variables, values in zip(learnt, steps(trained, fixed, state, dict(arrays)), strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    return run


def _torch(model: keras.Model, inputs: Inputs, loss: Loss) -> Steps:
    def run(arrays: Arrays) -> None:
        tensors = {name: ops.convert_to_tensor(array) for name, array in arrays.items()}
        for at in range(len(next(iter(tensors.values())))):
            minibatch = {name: tensor[at] for name, tensor in tensors.items()}
            model.zero_grad()
            loss(model(inputs(minibatch), training=True), minibatch).backward()
            gradients = [variable.value.grad for variable in model.trainable_variables]
            model.optimizer.apply(gradients, model.trainable_variables)

    return run


_CALL = {"tensorflow": _call_tensorflow, "jax": _call_jax, "torch": _call_torch}
_MAKE = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
