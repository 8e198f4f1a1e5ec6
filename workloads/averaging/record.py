"""What a run of averaging counts, and what each line of its curve.csv has."""

from typing import Final

from workloads.common import run

__all__ = ["COLUMNS", "Counts"]

COLUMNS: Final = ("seconds", "rounds", "samples", "loss", "score")
"""Seconds of training, rounds, samples, the mean loss of the round's samples, the score after it.

All but the seconds are the same in two runs with one seed and one number of actors.
"""


class Counts(run.Counts, kw_only=True):
    """How far a run is: whole rounds, samples in them, seconds."""

    rounds: int = 0
    samples: int = 0
