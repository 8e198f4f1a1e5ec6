"""An actor: plays with the learner's newest weights, and sends what came of it. `gpusched launch` starts it."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import Actor, ChannelError, LearnerGone
from gpusched.template.settings import Settings

__all__ = ["Bandit", "main"]

PULLS = 256  # in one batch


class Bandit:
    """Put your own environment here: a game, a simulator, a data set.

    This one has arms that pay a random amount each, around a hidden mean of each.
    """

    def __init__(self, arms: int, random: np.random.Generator) -> None:
        self._means = np.random.default_rng(0).normal(size=arms)  # the same for all actors
        self._random = random

    def play(self, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Pull arms, more often those that the weights prefer; return which (int64) and what they paid (float64)."""
        chances = np.exp(weights["preferences"] - weights["preferences"].max())
        pulled = self._random.choice(chances.size, PULLS, p=chances / chances.sum())
        return {"pulled": pulled, "paid": self._random.normal(self._means[pulled])}


def main() -> None:
    """Play until the learner ends the job."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    bandit = Bandit(settings.arms, np.random.default_rng([me.rank, me.attempt]))
    with Actor() as channel:
        while True:
            weights = channel.weights()  # the newest; waits only for the first
            channel.send(bandit.play(weights.arrays), version=weights.version)


if __name__ == "__main__":
    try:
        main()
    except LearnerGone:
        pass
    except ChannelError as error:
        sys.exit(str(error))
