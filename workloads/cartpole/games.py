"""Many games of Gymnasium's CartPole-v1 in step with each other. Knows no network and nobody who learns."""

from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIONS", "LONGEST", "OBSERVED", "Games", "Step"]

OBSERVED: Final = 4
ACTIONS: Final = 2
LONGEST: Final = 500
"""Steps after which a game is cut off: its return at best."""

_USUAL: Final = np.array([2.4, 3.0, 0.2095, 3.0], np.float32)
"""Position and angle at which a game is lost, and speeds that are high: a network learns faster what is about 1."""


class Step(msgspec.Struct, frozen=True, eq=False):
    """What a step gave, [games] each, but for `observations` float32 [games, 4], those after it.

    `played`: a game that has ended begins anew in its next step, whatever it is told to do; that step is none of it.
    `rewards` float32: -1 for a fall and else 0, which with a discount is the same task as 1 for each step. `fallen`:
    nothing comes after it. `ended`: fallen, or cut off after 500 steps, which is no fall: such a game is worth what it
    would have gone on to be. `returns` int64: the steps of each game so far, its return when it has ended.
    """

    played: NDArray[np.bool_]
    observations: NDArray[np.float32]
    rewards: NDArray[np.float32]
    fallen: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    returns: NDArray[np.int64]


class Games:
    """`count` games, all of whose starts are drawn from `random`.

    `observations` float32 [count, 4]: position, speed, angle and its speed, in parts of what is usual.
    """

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self._envs: Any = gymnasium.make_vec(
            "CartPole-v1", num_envs=count, vectorization_mode="vector_entry_point", sutton_barto_reward=True
        )
        self.draw_from(random)
        observations, _ = self._envs.reset()
        self.observations: NDArray[np.float32] = observations / _USUAL

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Push each cart, `actions` [count]: 0 to the left, 1 to the right."""
        played = ~self._envs.prev_done
        observations, rewards, fallen, cut, _ = self._envs.step(actions)
        self.observations = observations / _USUAL
        return Step(played, self.observations, rewards, fallen, fallen | cut, self._envs.steps.astype(np.int64))

    def draw_from(self, random: np.random.Generator) -> None:
        """Draw all further starts from `random`; games that are being played go on."""
        self._envs.np_random = random

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of what the games are at, by name."""
        envs = self._envs
        return {"state": envs.state.copy(), "steps": envs.steps.copy(), "over": envs.prev_done.copy()}

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what state() returned. Raises KeyError if something is missing."""
        self._envs.state, self._envs.steps = arrays["state"].copy(), arrays["steps"].copy()
        self._envs.prev_done = arrays["over"].copy()
        self.observations = self._envs.state.T.astype(np.float32) / _USUAL
