"""What a run of cartpole counts, and what each line of its scores.csv has."""

from typing import Final

from workloads.common import run

__all__ = ["COLUMNS", "Counts"]

COLUMNS: Final = ("seconds", "steps", "updates", "loss", "mean_return")
"""Seconds of training, environment steps, updates, the loss, the mean return of greedy games.

With the scheme `average` all but the seconds are the same in two runs with one seed and one number of actors.
"""


class Counts(run.Counts, kw_only=True):
    """How far a run is: environment steps, updates (weights that were published), seconds, whether it is solved.

    `best`: the best mean return of greedy games so far.
    """

    steps: int = 0
    updates: int = 0
    best: float = 0.0
    solved: bool = False
