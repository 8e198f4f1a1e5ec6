"""What the learner saves and starts again from: weights, the optimizer's state and how far it was, in one .npz file."""

from pathlib import Path
from typing import Any, Final

import keras
import msgspec
from numpy.typing import NDArray

from workloads.common.checkpoint import UnusableWeights, read_checkpoint, write_checkpoint
from workloads.snake.networks import build, named_weights, take_weights
from workloads.snake.settings import Network

__all__ = ["Counts", "UnusableWeights", "load", "load_network", "save"]

_OPTIMIZER: Final = "optimizer/"


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
    write_checkpoint(path, arrays, counts)


def load(path: Path, model: keras.Model) -> Counts:
    """Put what `path` holds into the model and its optimizer; return how far it was. Raises UnusableWeights.

    The learning rate, which Keras counts among the optimizer's variables, stays the model's own.
    """
    arrays, counts = read_checkpoint(path, Counts)
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
    arrays, counts = read_checkpoint(path, Counts)
    model = build(counts.network)
    take_weights(model, arrays)
    return model
