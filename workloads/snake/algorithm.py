"""What an algorithm is to the learner: it learns from what actors played, one piece after the other."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Algorithm", "Experience", "Played", "reward_scale"]

_USUAL_DISCOUNT: Final = 0.97
_LEAST_SCALE: Final = 0.03


def reward_scale(discount: float) -> float:
    """Return what a reward is multiplied by, so that values are as large as with a discount of 0.97."""
    return max((1 - discount) / (1 - _USUAL_DISCOUNT), _LEAST_SCALE)


class Experience(Protocol):
    """What an algorithm learns from at once: some environment steps, and the scores [n] of games that ended."""

    @property
    def steps(self) -> int:
        """How many environment steps these are, all games together."""

    @property
    def games(self) -> int:
        """How many games ended with them."""

    @property
    def scores(self) -> NDArray[np.int64]:
        """The scores of those games that say how good the network is; perhaps not of all."""


class Played(NamedTuple):
    """An experience, and the name of the actor that played it."""

    actor: str
    experience: Any
    """An Experience; which kind is between the algorithm and where it comes from."""


class Algorithm(ABC):
    """Changes the network that it was made with. By default there is nothing to save but that and its optimizer."""

    @abstractmethod
    def learn(self, experience: Any, done: float, /) -> bool:
        """Learn from an experience, when that part of the run is `done`, 0 to 1; return whether a generation ended."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is to be saved beside the network and its optimizer."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Go on with a network that was saved, and this beside it; return the scores of a generation begun then."""
        del state
        return np.empty(0, np.int64)
