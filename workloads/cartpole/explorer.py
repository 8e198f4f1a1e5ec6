"""Plays with chance, so that there is something to learn: each game as curious as it is told. Needs no framework."""

from collections import deque
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.cartpole.games import ACTIONS, Games
from workloads.cartpole.memory import Transitions
from workloads.cartpole.network import Policy

__all__ = ["Explorer", "curiosities"]

_LEAST: Final = 8
_MEAN_OVER: Final = 20


def curiosities(epsilon: float, games: int, rank: int, actors: int) -> NDArray[np.float64]:
    """Return how often each of an actor's games [games] moves at random: from `epsilon` down to its eighth power.

    All games of all actors are spread over that, and each actor's over the whole of it (Horgan et al. 2018,
    arXiv:1803.00933, section 4): a memory of a few thousand steps never forgets how one falls.
    """
    places = rank % actors + np.arange(games) * actors
    return epsilon ** (1 + (_LEAST - 1) * places / max(1, games * actors - 1))


class Explorer:
    """Plays `games`, each moving at random as often as `epsilons` [games] say. Its chances come from `random`."""

    def __init__(self, games: Games, epsilons: NDArray[np.float64], random: np.random.Generator) -> None:
        self.games = games
        self._epsilons = epsilons
        self._random = random
        self._returns: deque[int] = deque(maxlen=_MEAN_OVER)

    @property
    def score(self) -> float | None:
        """The mean return of the last 20 games, None before the first has ended."""
        return float(np.mean(self._returns)) if self._returns else None

    def draw_from(self, random: np.random.Generator) -> None:
        """Draw all further chances, the starts of games among them, from `random`."""
        self._random = random
        self.games.draw_from(random)

    def play(self, weights: Mapping[str, NDArray[np.float32]], steps: int) -> Transitions:
        """Make so many steps of each game with the network that has these weights; return those that were played."""
        policy = Policy(weights)
        made = [self._step(policy) for _ in range(steps)]
        return Transitions(*(np.concatenate(arrays) for arrays in zip(*made, strict=True)))

    def _step(self, policy: Policy) -> tuple[NDArray[np.generic], ...]:
        before = self.games.observations
        by_chance = self._random.random(len(before)) < self._epsilons
        actions = np.where(by_chance, self._random.integers(ACTIONS, size=len(before)), policy.actions(before))
        step = self.games.step(actions)
        self._returns.extend(step.returns[step.ended].tolist())
        played = step.played
        return (
            before[played],
            actions[played].astype(np.uint8),
            step.rewards[played],
            step.observations[played],
            step.fallen[played],
        )
