"""What the learner saves and starts again from: weights, the optimizer's state and how far it was, in one .npz file."""

import os
import zipfile
from pathlib import Path
from typing import Any, Final

import keras
import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.snake.networks import build, named_weights, take_weights
from workloads.snake.settings import Network

__all__ = ["Counts", "UnusableWeights", "load", "load_network", "save"]

_COUNTS: Final = "counts"
_OPTIMIZER: Final = "optimizer/"


class UnusableWeights(Exception):
    """A file of weights is missing, damaged, or of another network."""


class Counts(msgspec.Struct, kw_only=True):
    """How far training is: environment steps, updates (rollouts learnt from), whole games, seconds."""

    network: Network
    steps: int = 0
    updates: int = 0
    games: int = 0
    seconds: float = 0.0


def save(path: Path, model: keras.Model, counts: Counts) -> None:
    """Write `path` as a whole: whoever reads it, and whenever this process dies, it is the old file or the new one."""
    arrays: dict[str, NDArray[Any]] = dict(named_weights(model))
    for index, variable in enumerate(model.optimizer.variables):
        arrays[f"{_OPTIMIZER}{index}"] = variable.numpy()
    arrays[_COUNTS] = np.array(msgspec.json.encode(counts))
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load(path: Path, model: keras.Model) -> Counts:
    """Put what `path` holds into the model and its optimizer; return how far it was. Raises UnusableWeights.

    The learning rate, which Keras counts among the optimizer's variables, stays the model's own.
    """
    arrays, counts = _read(path)
    try:
        take_weights(model, arrays)
    except ValueError as error:
        raise UnusableWeights(f"{path}: {error}; it holds the network {counts.network!r}") from None
    rate = float(model.optimizer.learning_rate)
    for index, variable in enumerate(model.optimizer.variables):
        variable.assign(arrays[f"{_OPTIMIZER}{index}"])
    model.optimizer.learning_rate = rate
    return counts


def load_network(path: Path) -> keras.Model:
    """Return the network that `path` holds, ready to play. Raises UnusableWeights."""
    arrays, counts = _read(path)
    model = build(counts.network)
    take_weights(model, arrays)
    return model


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], Counts]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, msgspec.json.decode(arrays.pop(_COUNTS).item(), type=Counts)
    except OSError as error:
        raise UnusableWeights(f"{path}: {error.strerror or error}") from None
    except (KeyError, ValueError, AttributeError, zipfile.BadZipFile, msgspec.MsgspecError):
        raise UnusableWeights(f"{path} holds no weights that this workload has saved") from None
