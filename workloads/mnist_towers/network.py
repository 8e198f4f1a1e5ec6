"""The network and its loss: what both styles compute on each device."""

from math import isqrt
from typing import Any, Final

import keras
import tensorflow as tf
from keras import layers

__all__ = ["build", "losses"]

_KINDS: Final = 10


def build(pixels: int) -> keras.Model:
    """Return a new network: square images [n, pixels] -> logits [n, 10]."""
    side = isqrt(pixels)
    body = [
        layers.Reshape((side, side, 1)),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="strokes"),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="shapes"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, activation="relu", name="hidden"),
        layers.Dense(_KINDS, name="logits"),
    ]
    return keras.Sequential([keras.Input((pixels,)), *body], name="digits")


def losses(model: keras.Model, images: Any, labels: Any) -> Any:
    """Return the cross-entropy [n] of each sample."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
