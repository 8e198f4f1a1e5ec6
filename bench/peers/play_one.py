"""One game, and one forward of the original's network for each of its steps, in all ways in which that can be written.

The network has no value head and takes the frame as it is, scaled: less than ours does. Actions are drawn from the
policy in NumPy.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.peers.layers import SHAPES
from bench.peers.play import Play
from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import FRUIT, MOVES, SIDE

__all__ = ["FORWARDS", "Forward", "keras_model", "player", "weights"]

Floats = NDArray[np.float32]
Forward = Callable[[Floats], Any]
"""Frames float32 [n, 10, 10, 1] -> logits [n, 4]; some take only n = 1."""

_AT_ONCE: Final = 4
_SPREAD: Final = 0.05


def player(row: str) -> Play:
    """Return what plays one game with a forward of FORWARDS. Raises ImportError if that is not there."""
    forward, random, game = FORWARDS[row](weights()), np.random.default_rng(0), SnakeEnvironment()
    frame, _ = game.reset(seed=0)

    def play() -> int:
        nonlocal frame
        for _ in range(_AT_ONCE):
            logits = forward(np.divide(frame, FRUIT, dtype=np.float32).reshape(1, SIDE, SIDE, 1))
            action = int((logits[0] + random.gumbel(size=len(MOVES))).argmax())
            frame, _, terminated, truncated, _ = game.step(action)
            if terminated or truncated:
                frame, _ = game.reset()
        return _AT_ONCE

    return play


def weights() -> list[Floats]:
    """Return weights for the original's network: kernel and bias of two convolutions and two dense layers."""
    random = np.random.default_rng(1)
    return [random.normal(0, _SPREAD, shape).astype(np.float32) for shape in SHAPES]


def keras_model(arrays: Sequence[Floats]) -> Any:
    """Return the network in Keras."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            layers.Conv2D(100, 4, activation="relu"),
            layers.Conv2D(200, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(200, activation="relu"),
            layers.Dense(len(MOVES)),
        ]
    )
    model.set_weights(arrays)
    return model


def _predict(arrays: Sequence[Floats]) -> Forward:
    model = keras_model(arrays)
    return lambda frames: model.predict(frames, verbose=0)


def _eager(arrays: Sequence[Floats]) -> Forward:
    model = keras_model(arrays)
    return lambda frames: model(frames, training=False).numpy()


def _function(arrays: Sequence[Floats]) -> Forward:
    import tensorflow as tf

    model = keras_model(arrays)
    spec = tf.TensorSpec((None, SIDE, SIDE, 1), tf.float32)
    compiled = tf.function(lambda frames: model(frames, training=False), input_signature=[spec])
    concrete = compiled.get_concrete_function()
    return lambda frames: concrete(tf.constant(frames)).numpy()


def _session(arrays: Sequence[Floats]) -> Forward:
    """What the original had: a graph, and a session that runs it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        frames = v1.placeholder(tf.float32, (None, SIDE, SIDE, 1))
        w = [v1.get_variable(f"w{place}", initializer=array) for place, array in enumerate(arrays)]
        x = tf.nn.relu(tf.nn.conv2d(frames, w[0], 1, "VALID") + w[1])
        x = tf.nn.relu(tf.nn.conv2d(x, w[2], 1, "VALID") + w[3])
        x = tf.nn.relu(tf.reshape(x, (-1, arrays[4].shape[0])) @ w[4] + w[5])
        logits = x @ w[6] + w[7]
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    return lambda given: session.run(logits, {frames: given})


def _numpy(arrays: Sequence[Floats]) -> Forward:
    """Each convolution as one product of matrices."""

    def convolved(x: Any, kernel: Floats, bias: Floats) -> Any:
        side = len(kernel)
        windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
        rows = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, kernel[..., 0].size)
        out = rows @ kernel.reshape(-1, bias.size) + bias
        return np.maximum(out, 0, out=out).reshape(*windows.shape[:3], -1)

    def forward(frames: Floats) -> Any:
        x = convolved(convolved(frames, arrays[0], arrays[1]), arrays[2], arrays[3])
        x = np.maximum(x.reshape(len(x), -1) @ arrays[4] + arrays[5], 0)
        return x @ arrays[6] + arrays[7]

    return forward


def _lite(arrays: Sequence[Floats]) -> Forward:
    """TensorFlow Lite's interpreter, with as many threads as there are cores. It takes one frame at a time."""
    import os

    import tensorflow as tf

    if not hasattr(tf, "lite"):
        raise ImportError("this TensorFlow has no Lite")
    content = tf.lite.TFLiteConverter.from_keras_model(keras_model(arrays)).convert()
    interpreter = tf.lite.Interpreter(model_content=content, num_threads=len(os.sched_getaffinity(0)))
    interpreter.allocate_tensors()
    given, taken = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

    def forward(frames: Floats) -> Any:
        interpreter.set_tensor(given, frames)
        interpreter.invoke()
        return interpreter.get_tensor(taken)

    return forward


FORWARDS: Final[dict[str, Callable[[Sequence[Floats]], Forward]]] = {
    "predict": _predict,
    "eager": _eager,
    "function": _function,
    "session": _session,
    "numpy": _numpy,
    "lite": _lite,
}
