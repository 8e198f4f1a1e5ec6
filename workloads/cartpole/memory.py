"""The replay memory: the newest transitions, from which is learnt again and again."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.cartpole.games import OBSERVED

__all__ = ["Memory", "Transitions", "transitions_from"]

_ENOUGH: Final = 300
_TYPES: Final[dict[str, tuple[type[np.generic], tuple[int, ...]]]] = {
    "observations": (np.float32, (OBSERVED,)),
    "actions": (np.uint8, ()),
    "rewards": (np.float32, ()),
    "following": (np.float32, (OBSERVED,)),
    "fallen": (np.bool_, ()),
}


class Transitions(msgspec.Struct, frozen=True, eq=False):
    """Steps of games, [...] of them: float32 `observations` [..., 4] before and `following` [..., 4] after each.

    [...] are `actions` uint8, `rewards` float32, and `fallen` bool: nothing is worth anything after that step.
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    following: NDArray[np.float32]
    fallen: NDArray[np.bool_]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return them by name, as they travel."""
        return msgspec.structs.asdict(self)


class Memory:
    """Holds the newest `size` transitions."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = {name: np.zeros((size, *shape), kind) for name, (kind, shape) in _TYPES.items()}
        self._added = 0

    @property
    def enough(self) -> bool:
        """Whether it holds enough to begin to learn from."""
        return self._added >= min(self._size, _ENOUGH)

    def add(self, new: Transitions) -> None:
        """Take in new ones [n], in the place of the oldest."""
        arrays = new.arrays()
        places = np.arange(self._added, self._added + len(new.actions))[-self._size :] % self._size
        for name, held in self._held.items():
            held[places] = arrays[name][-self._size :]
        self._added += len(new.actions)

    def sample(self, shape: tuple[int, ...], random: np.random.Generator) -> Transitions:
        """Draw transitions in this shape, each as likely, and perhaps twice."""
        places = random.integers(min(self._added, self._size), size=shape)
        return Transitions(**{name: held[places] for name, held in self._held.items()})

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is in it, by name: its own arrays."""
        return {**self._held, "added": np.array(self._added)}

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what state() of one of the same size returned. Raises KeyError, ValueError."""
        for name, held in self._held.items():
            held[:] = arrays[name]
        self._added = int(arrays["added"])


def transitions_from(arrays: Mapping[str, NDArray[Any]]) -> Transitions:
    """Return the transitions [n] that travelled so. Raises ValueError if these are none."""
    count = arrays["actions"].size if "actions" in arrays else 0
    for name, (kind, shape) in _TYPES.items():
        array = arrays.get(name)
        if array is None or array.dtype != kind or array.shape != (count, *shape):
            told = "missing" if array is None else f"{array.dtype} {array.shape}"
            raise ValueError(f"{name} is {told}, not {np.dtype(kind)} {(count, *shape)}")
    return Transitions(**{name: arrays[name] for name in _TYPES})
