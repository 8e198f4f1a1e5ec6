"""The two networks, as Keras 3 models that name no backend, and their weights as named arrays.

Knows what a frame holds; knows nothing about how a network is trained.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
from keras import layers, ops
from numpy.typing import NDArray

from workloads.common.weights import Arrays, Weights
from workloads.snake.convolution import OneTileConvolution
from workloads.snake.rules import FRUIT, HEAD, MOVES, SIDE, Frames
from workloads.snake.settings import Network

__all__ = ["build", "judge", "named_weights", "take_weights"]

_WALL: Final = HEAD - 1
_TIP_OF_TAIL: Final = 0.5
_LONG_TAIL: Final = 40.0
_FIRST_CPU: Final = 8192


@keras.saving.register_keras_serializable("gpusched")
class OnePlane(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> float [n, 10, 10, 1]: the tail above 0 by how long it stays, head and fruit apart."""

    def call(self, frames: Any) -> Any:
        """Decode `frames`."""
        frames = ops.expand_dims(ops.cast(frames, self.compute_dtype), -1)
        tail = ops.where(frames > 0, _TIP_OF_TAIL + frames / _LONG_TAIL, 0.0)
        return ops.where(ops.equal(frames, HEAD), 3.0, ops.where(ops.equal(frames, FRUIT), -3.0, tail))


@keras.saving.register_keras_serializable("gpusched")
class SeenFromHead(layers.Layer):  # type: ignore[misc]
    """Frames uint8 [n, 10, 10] -> float [n, 11 * 11 * 3]: fruit, wall and tail, with the head always in the middle.

    The board with one line of wall is a torus of 11 x 11: rolled until the head is in the middle, each cell is in
    it exactly once, and what is left, right, above and below of the head is always at the same place.
    """

    def build(self, input_shape: Any) -> None:
        """Make the table of rolls: [k] is the matrix that brings line k to the middle."""
        del input_shape
        lines = np.eye(SIDE + 1, dtype=np.float32)
        self._rolls = np.stack([np.roll(lines, (SIDE + 1) // 2 - k, axis=0) for k in range(SIDE + 1)])

    def call(self, frames: Any) -> Any:
        """Decode `frames`."""
        frames = ops.cast(frames, self.compute_dtype)
        board = ops.pad(frames, ((0, 0), (0, 1), (0, 1)), constant_values=_WALL)
        head = _is(board, HEAD)
        rolls = ops.cast(self._rolls, self.compute_dtype)
        to_row = ops.tensordot(ops.max(head, axis=2), rolls, 1)
        to_column = ops.tensordot(ops.max(head, axis=1), rolls, 1)
        seen = ops.matmul(ops.matmul(to_row, board), ops.transpose(to_column, (0, 2, 1)))
        fruit, wall = _is(seen, FRUIT), _is(seen, _WALL)
        tail = ops.cast(seen > 0, seen.dtype) - fruit - wall - _is(seen, HEAD)
        planes = ops.stack([fruit, wall, tail * (_TIP_OF_TAIL + seen / _LONG_TAIL)], axis=-1)
        return ops.reshape(planes, (-1, (SIDE + 1) ** 2 * 3))


def _is(frames: Any, what: int) -> Any:
    return ops.cast(ops.equal(frames, what), frames.dtype)


def _original(frames: Any) -> Any:
    # A GPU has arithmetic to spare, and may round products to TF32.
    on_gpu = _has_gpu()
    second = layers.Conv2D if on_gpu else OneTileConvolution
    dense = "mixed_bfloat16" if not on_gpu and _multiplies_bfloat16() else "float32"
    x = OnePlane()(frames)
    x = layers.Conv2D(100, 4, activation="relu", name="convolution_1")(x)
    x = second(200, 3, activation="relu", name="convolution_2")(x)
    return layers.Dense(200, activation="relu", name="dense", dtype=dense)(layers.Flatten()(x))


def _has_gpu() -> bool:
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except (AttributeError, RuntimeError):  # Keras cannot tell of PyTorch; JAX knows no such kind without one
        return False


def _multiplies_bfloat16(cpus: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU has instructions for it: twice the speed, and slower than float32 without them."""
    try:
        with cpus.open() as file:
            first = file.read(_FIRST_CPU)
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16"}.intersection(first.split()))


def _small(frames: Any) -> Any:
    x = SeenFromHead()(frames)
    x = layers.Dense(128, activation="relu", name="dense_1")(x)
    return layers.Dense(128, activation="relu", name="dense_2")(x)


_BODIES: Final[dict[Network, Callable[[Any], Any]]] = {"original": _original, "small": _small}


def build(network: Network) -> keras.Model:
    """Return a new model: frames uint8 [n, 10, 10] -> [logits [n, 4], values [n, 1]].

    `original` has 1,182,904 weights and the value head; `small` learns faster where arithmetic is dear. XLA is left
    out, but for JAX, which computes step by step without: it compiles for each number of frames anew, 0.4 s each on a
    CPU, and is no faster there than TensorFlow.
    """
    frames = keras.Input((SIDE, SIDE), dtype="uint8")
    x = _BODIES[network](frames)
    heads = [layers.Dense(len(MOVES), name="policy")(x), layers.Dense(1, name="value")(x)]
    model = keras.Model(frames, heads, name=network)
    model.jit_compile = keras.backend.backend() == "jax"
    return model


def judge(model: keras.Model, frames: Frames) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the logits [n, 4] and the values [n] of frames [n, 10, 10].

    TensorFlow compiles for the first n, and at the second for all, so n may change from call to call; JAX for each.
    """
    logits, values = model.predict_on_batch(frames)
    return np.asarray(logits), np.asarray(values)[:, 0]


def named_weights(model: keras.Model) -> Arrays:
    """Return copies of the weights, by the name of layer and weight."""
    return Weights(model).get()


def take_weights(model: keras.Model, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Put `arrays` into the model. Raises ValueError if they are another network's."""
    Weights(model).set(arrays)
