"""The network that says what each push is worth, and the same in NumPy, for whoever only plays."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from workloads.cartpole.games import ACTIONS, OBSERVED

if TYPE_CHECKING:
    import keras

__all__ = ["Policy", "build"]

_HIDDEN: Final = ("hidden_1", "hidden_2")
_WIDTH: Final = 64
_LAST: Final = "worths"


def build(seed: int) -> "keras.Model":
    """Return a new network, the same for the same seed: observations float32 [n, 4] -> worths [n, 2]."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(seed)
    hidden = [layers.Dense(_WIDTH, activation="relu", name=name) for name in _HIDDEN]
    return keras.Sequential([keras.Input((OBSERVED,)), *hidden, layers.Dense(ACTIONS, name=_LAST)], name="cartpole")


class Policy:
    """Plays with weights that are given by name, as Weights.get() has them. Raises KeyError if one is missing."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._layers = [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in (*_HIDDEN, _LAST)]

    def worths(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what each push is worth [n, 2], as the network says it."""
        *hidden, (kernel, bias) = self._layers
        for kernel_before, bias_before in hidden:
            observations = np.maximum(observations @ kernel_before + bias_before, 0)
        return observations @ kernel + bias

    def actions(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the pushes [n] that are worth most."""
        best: NDArray[np.int64] = self.worths(observations).argmax(axis=1)
        return best
