"""The two networks, as Keras 3 models that name no backend.

Knows what a frame holds; knows nothing about how a network is trained.
"""

from typing import Any, Final, NamedTuple

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from workloads.common.compiled import compiled_call
from workloads.snake.convolution import OneTileConvolution
from workloads.snake.inputs import Around, AroundAndPaths, OnePlane, Paths, SeenFromHead, Whole
from workloads.snake.rules import MOVES, SIDE, Frames, Hunger
from workloads.snake.settings import Inputs, Network
from workloads.snake.symmetry import Layout, Observations

__all__ = [
    "Judged",
    "build",
    "judge",
    "judge_any_number",
    "layout_of",
    "reader",
]

_OBSERVATION: Final = "observation"


def _original(observed: Any) -> Any:
    # A GPU has arithmetic to spare, and may round products to TF32.
    second = layers.Conv2D if _has_gpu() else OneTileConvolution
    x = OnePlane()(observed)
    x = layers.Conv2D(100, 4, activation="relu", name="convolution_1")(x)
    x = second(200, 3, activation="relu", name="convolution_2")(x)
    return layers.Dense(200, activation="relu", name="dense")(layers.Flatten()(x))


def _has_gpu() -> bool:
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except (AttributeError, RuntimeError):  # Keras cannot tell of PyTorch; JAX knows no such kind without one
        return False


def _small(seen: Any) -> Any:
    x = layers.Dense(128, activation="relu", name="dense_1")(seen)
    return layers.Dense(128, activation="relu", name="dense_2")(x)


def build(network: Network, inputs: Inputs = "frame") -> keras.Model:
    """Return a new model: frames uint8 [n, 10, 10] -> [logits [n, 4], values [n, 1]].

    With the inputs `paths`: [frames, hunger uint8 [n]] -> the same. `original` has 1,182,904 weights and the value
    head, and sees the frame; `small` learns faster where arithmetic is dear. XLA compiles that one as a whole, once for
    each n: it is many small steps. For `original` XLA is no faster on a CPU, but JAX needs it. PyTorch has none.
    """
    frames, hunger = keras.Input((SIDE, SIDE), dtype="uint8"), keras.Input((), dtype="uint8")
    if network == "original":
        boards, x = frames, _original(Whole(name=_OBSERVATION)(frames))
    elif inputs == "frame":
        boards, x = frames, _small(SeenFromHead()(Around(name=_OBSERVATION)(frames)))
    else:
        boards, x = [frames, hunger], _small(Paths()(AroundAndPaths(name=_OBSERVATION)(frames, hunger)))
    heads = [layers.Dense(len(MOVES), name="policy")(x), layers.Dense(1, name="value")(x)]
    model = keras.Model(boards, heads, name=network)
    model.jit_compile = keras.backend.backend() in (("tensorflow", "jax") if network == "small" else ("jax",))
    return model


class Judged(NamedTuple):
    """What a network says of n boards: logits [n, 4], values [n], and the observations [n, k] that it read."""

    logits: NDArray[np.float32]
    values: NDArray[np.float32]
    observations: Observations


def judge(model: keras.Model, frames: Frames, hunger: Hunger | None = None) -> Judged:
    """Return what the model says of frames [n, 10, 10] and hunger [n].

    A model that sees the frame only needs no hunger. Each n is compiled once, which takes seconds on a CPU: callers
    keep to few.
    """
    if not hasattr(model, "compiled_call"):
        telling = keras.Model(model.inputs, [*model.outputs, model.get_layer(_OBSERVATION).output])
        telling.jit_compile = model.jit_compile
        model.compiled_call = compiled_call(telling)
    logits, values, observations = map(
        np.asarray, model.compiled_call([frames, hunger] if len(model.inputs) > 1 else frames)
    )
    return Judged(logits, values[:, 0], observations)


def judge_any_number(model: keras.Model, frames: Frames, hunger: Hunger) -> Judged:
    """Return what judge() does, for an n that changes from call to call: it compiles for powers of two only."""
    count = len(frames)
    more = (1 << (count - 1).bit_length()) - count
    padded = np.concatenate([frames, np.zeros((more, *frames.shape[1:]), frames.dtype)])
    judged = judge(model, padded, np.concatenate([hunger, np.zeros(more, hunger.dtype)]))
    return Judged(judged.logits[:count], judged.values[:count], judged.observations[:count])


def reader(model: keras.Model) -> keras.Model:
    """Return the part of `model` that reads observations uint8 [n, k], with the same weights."""
    part = keras.Model(model.get_layer(_OBSERVATION).output, model.outputs)
    part.jit_compile = model.jit_compile
    return part


def layout_of(model: keras.Model) -> Layout:
    """Return what the bytes of the model's observations are."""
    layout: Layout = model.get_layer(_OBSERVATION).layout
    return layout
