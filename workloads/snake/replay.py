"""The replay memory: transitions that were played, the newest so many, to be learnt from again. Knows no network."""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.snake.exploring import Explored
from workloads.snake.rollout import Floats
from workloads.snake.symmetry import Observations

__all__ = ["Replay", "Transitions", "transitions"]

_STEPS: Final = 3


class Transitions(msgspec.Struct, frozen=True, eq=False):
    """What some moves led to: [n] `observations`, `actions` chosen there, `returns` of the moves up to `later` ones.

    `worth`: how much what comes after `later` is worth now; 0 if the game is over by then. `observations` and `later`
    are uint8 [n, k], `actions` uint8, `returns` and `worth` float32.
    """

    observations: Observations
    actions: NDArray[np.uint8]
    returns: Floats
    later: Observations
    worth: Floats


def transitions(explored: Explored, discount: float, steps: int = _STEPS) -> Transitions:
    """Return the transitions of each step to that `steps` later, or to the end of what was explored.

    Returns of some steps bring a fruit's worth back sooner (Hessel et al. 2018, arXiv:1710.02298, equation 1), and are
    a little off: what was played at random in between counts, too.
    """
    count, games = explored.actions.shape
    returns = np.zeros((count, games), np.float32)
    worth = np.ones((count, games), np.float32)
    for ahead in range(min(steps, count)):
        here = slice(0, count - ahead)
        returns[here] += worth[here] * explored.rewards[ahead:]
        worth[here] *= np.float32(discount) * ~explored.ended[ahead:]
    ends, size = np.minimum(np.arange(count) + steps, count), explored.observations.shape[-1]
    return Transitions(
        observations=explored.observations[:count].reshape(-1, size),
        actions=explored.actions.ravel(),
        returns=returns.ravel(),
        later=explored.observations[ends].reshape(-1, size),
        worth=worth.ravel(),
    )


class Replay:
    """Holds up to `capacity` transitions, the newest in the place of the oldest; an observation has `size` bytes."""

    def __init__(self, capacity: int, size: int) -> None:
        self._capacity = capacity
        self._held = Transitions(
            observations=np.zeros((capacity, size), np.uint8),
            actions=np.zeros(capacity, np.uint8),
            returns=np.zeros(capacity, np.float32),
            later=np.zeros((capacity, size), np.uint8),
            worth=np.zeros(capacity, np.float32),
        )
        self._at = 0
        self.size = 0

    def add(self, new: Transitions) -> None:
        """Take transitions [n]; of more than it can hold, the last ones."""
        places = np.arange(self._at, self._at + len(new.actions))[-self._capacity :] % self._capacity
        for name in Transitions.__struct_fields__:
            getattr(self._held, name)[places] = getattr(new, name)[-self._capacity :]
        self._at = (self._at + len(new.actions)) % self._capacity
        self.size = min(self._capacity, self.size + len(new.actions))

    def draw(self, count: int, random: np.random.Generator) -> Transitions:
        """Return `count` of them, each as likely as the other."""
        places = random.integers(self.size, size=count)
        return Transitions(**{name: getattr(self._held, name)[places] for name in Transitions.__struct_fields__})
