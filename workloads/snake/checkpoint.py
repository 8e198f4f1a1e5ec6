"""What the learner saves and starts again from: weights, the optimizer's state and how far it was, in one .npz file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import keras
import msgspec
from numpy.typing import NDArray

from workloads.common.checkpoint import UnusableWeights, read_checkpoint, write_checkpoint
from workloads.snake.networks import build, named_weights, take_weights
from workloads.snake.settings import Algo, Inputs, Network

__all__ = ["Counts", "UnusableWeights", "load", "load_network", "load_state", "save"]

_OPTIMIZER: Final = "optimizer/"
_STATE: Final = "state/"


class Counts(msgspec.Struct, kw_only=True):
    """How far training is: environment steps, updates (batches learnt from), whole games, seconds."""

    network: Network
    inputs: Inputs = "frame"
    algo: Algo = "a2c"
    steps: int = 0
    updates: int = 0
    games: int = 0
    seconds: float = 0.0


def save(path: Path, model: keras.Model, counts: Counts, state: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write `path` as a whole: whoever reads it, and whenever this process dies, it is the old file or the new one.

    `state`: what the algorithm needs beside network and optimizer to go on.
    """
    arrays: dict[str, NDArray[Any]] = dict(named_weights(model))
    if model.compiled:
        arrays |= {f"{_OPTIMIZER}{index}": one.numpy() for index, one in enumerate(model.optimizer.variables)}
    arrays |= {f"{_STATE}{name}": array for name, array in (state or {}).items()}
    write_checkpoint(path, arrays, counts)


def load(path: Path, model: keras.Model, algo: Algo = "a2c") -> Counts:
    """Put what `path` holds into the model and its optimizer; return how far it was. Raises UnusableWeights.

    Of a network that another algorithm trained the optimizer stays as it is. The learning rate, which Keras counts
    among the optimizer's variables, stays the model's own.
    """
    arrays, counts = _load_weights(path, model)
    if not model.compiled or counts.algo != algo:
        return counts
    rate = float(model.optimizer.learning_rate)
    for index, variable in enumerate(model.optimizer.variables):
        variable.assign(arrays[f"{_OPTIMIZER}{index}"])
    model.optimizer.learning_rate = rate
    return counts


def load_state(path: Path) -> dict[str, NDArray[Any]]:
    """Return the `state` that `path` was saved with. Raises UnusableWeights."""
    arrays, _ = read_checkpoint(path, Counts)
    return {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}


def load_network(path: Path) -> tuple[keras.Model, Counts]:
    """Return the network that `path` holds, ready to play, and how far it was. Raises UnusableWeights."""
    _, counts = read_checkpoint(path, Counts)
    model = build(counts.network, counts.inputs)
    _load_weights(path, model)
    return model, counts


def _load_weights(path: Path, model: keras.Model) -> tuple[dict[str, NDArray[Any]], Counts]:
    arrays, counts = read_checkpoint(path, Counts)
    try:
        take_weights(model, arrays)
    except ValueError as error:
        held = f"the network {counts.network!r} with the inputs {counts.inputs!r}"
        raise UnusableWeights(f"{path}: {error}; it holds {held}") from None
    return arrays, counts
