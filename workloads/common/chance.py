"""Random numbers of each part of a run, which begin from one seed and are yet apart from all others'."""

from typing import Final, Literal, get_args

import numpy as np

__all__ = ["User", "chance_of"]

User = Literal["learner", "actor", "answers"]
"""Who draws them; `answers`: a learner that draws the moves of its actors."""

_USERS: Final[tuple[User, ...]] = get_args(User)


def chance_of(user: User, *numbers: int) -> np.random.Generator:
    """Return what draws for `user`, from the run's seed and what else tells it from its like: each at least 0.

    NumPy fills short lists of numbers up with zeros: [7, 0] and [7, 0, 0] are the same to it. Here the first is never 0
    and another for each user, which has as many numbers each time.
    """
    return np.random.default_rng([1 + _USERS.index(user), *numbers])
