"""The weights of a Keras model as named arrays, or as one vector."""

from collections.abc import Mapping

import keras
import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Vector", "Weights"]

Arrays = dict[str, NDArray[np.float32]]
Vector = NDArray[np.float32]


class Weights:
    """Gets and sets all weights of `model`, which must be built.

    A weight's name is that of its layer and its own, `dense/kernel`, without the model's; where a model has two of one
    name, the second is `dense/kernel#2`. Models of one process may have the same names: each Weights holds on to the
    variables of its own. Where weights go to another process, name the layers: names that Keras invents count all
    layers of a process. The vector holds the weights in the order of `names`, each row by row.

    Variables are read and assigned as they are, outside of any compiled function, so that none is traced anew.
    """

    def __init__(self, model: keras.Model) -> None:
        self._of = model.name
        self._variables: dict[str, keras.Variable] = {}
        for variable in model.weights:
            name = variable.path.removeprefix(f"{model.name}/")  # of some models each path begins with it
            self._variables[_unused(name, self._variables)] = variable
        self._ends = np.cumsum([int(np.prod(variable.shape)) for variable in self._variables.values()])

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the model's layers."""
        return tuple(self._variables)

    @property
    def size(self) -> int:
        """How many numbers the vector holds."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def get(self) -> Arrays:
        """Return copies of the weights by name."""
        return {name: variable.numpy() for name, variable in self._variables.items()}

    def set(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Put `arrays` into the model; names that it has not are left out.

        Raises ValueError, and changes nothing, if a weight is missing or has another shape.
        """
        for name, variable in self._variables.items():
            if name not in arrays or arrays[name].shape != variable.shape:
                raise ValueError(
                    f"these weights are not of the network {self._of!r}: {name} is missing or has another shape"
                )
        for name, variable in self._variables.items():
            variable.assign(arrays[name])

    def get_flat(self) -> Vector:
        """Return a copy of the weights as a vector [size]."""
        arrays = [variable.numpy().ravel() for variable in self._variables.values()]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.float32)

    def set_flat(self, vector: Vector) -> None:
        """Put a vector [size] into the model. Raises ValueError if it has another shape."""
        self.set(self.split(vector))

    def split(self, vector: Vector) -> Arrays:
        """Return the parts of a vector [size] by name: views, shaped as the weights. Raises ValueError as set_flat."""
        if vector.shape != (self.size,):
            raise ValueError(f"{vector.shape} is no vector of the {self.size:,} weights of the network {self._of!r}")
        parts = np.split(vector, self._ends[:-1])
        return {
            name: part.reshape(variable.shape)
            for (name, variable), part in zip(self._variables.items(), parts, strict=True)
        }


def _unused(name: str, used: Mapping[str, object]) -> str:
    number, unused = 1, name
    while unused in used:
        number += 1
        unused = f"{name}#{number}"
    return unused
