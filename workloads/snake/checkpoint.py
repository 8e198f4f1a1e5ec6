"""What the learner saves and starts again from: weights, the optimizer's state and how far it was, in one .npz file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import keras
from numpy.typing import NDArray

from workloads.common import run
from workloads.common.checkpoint import UnusableWeights, below, read_checkpoint, write_checkpoint
from workloads.common.weights import Weights
from workloads.snake.networks import build
from workloads.snake.settings import Algo, Inputs, Network

__all__ = ["Counts", "UnusableWeights", "load", "load_network", "save"]

_OPTIMIZER: Final = "optimizer/"
_STATE: Final = "state/"


class Counts(run.Counts, kw_only=True):
    """How far training is: environment steps, updates (batches learnt from), whole games, seconds."""

    network: Network
    inputs: Inputs = "frame"
    algo: Algo = "a2c"
    steps: int = 0
    updates: int = 0
    games: int = 0


def save(path: Path, model: keras.Model, counts: Counts, state: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write `path` as a whole: whoever reads it, and whenever this process dies, it is the old file or the new one.

    `state`: what the algorithm needs beside network and optimizer to go on.
    """
    arrays: dict[str, NDArray[Any]] = dict(Weights(model).get())
    if model.compiled:
        arrays |= {f"{_OPTIMIZER}{index}": one.numpy() for index, one in enumerate(model.optimizer.variables)}
    arrays |= {f"{_STATE}{name}": array for name, array in (state or {}).items()}
    write_checkpoint(path, arrays, counts)


def load(path: Path, model: keras.Model, algo: Algo = "a2c") -> tuple[Counts, dict[str, NDArray[Any]]]:
    """Put what `path` holds into the model and its optimizer; return how far it was, and the `state` saved with it.

    Of a network that another algorithm trained the optimizer stays as it is. The learning rate, which Keras counts
    among the optimizer's variables, stays the model's own. Raises UnusableWeights.
    """
    arrays, counts = read_checkpoint(path, Counts)
    _set_weights(path, model, arrays, counts)
    if model.compiled and counts.algo == algo:
        rate = float(model.optimizer.learning_rate)
        for index, variable in enumerate(model.optimizer.variables):
            variable.assign(arrays[f"{_OPTIMIZER}{index}"])
        model.optimizer.learning_rate = rate
    return counts, below(_STATE, arrays)


def load_network(path: Path) -> tuple[keras.Model, Counts]:
    """Return the network that `path` holds, ready to play, and how far it was. Raises UnusableWeights."""
    arrays, counts = read_checkpoint(path, Counts)
    model = build(counts.network, counts.inputs)
    _set_weights(path, model, arrays, counts)
    return model, counts


def _set_weights(path: Path, model: keras.Model, arrays: Mapping[str, NDArray[Any]], counts: Counts) -> None:
    try:
        Weights(model).set(arrays)
    except ValueError as error:
        held = f"the network {counts.network!r} with the inputs {counts.inputs!r}"
        raise UnusableWeights(f"{path}: {error}; it holds {held}") from None
