"""What a run counts, and what each line of its curve.csv has. Knows no device."""

from typing import Final

from workloads.common import run

__all__ = ["COLUMNS", "Counts"]

COLUMNS: Final = ("seconds", "steps", "passes", "loss", "score")
"""Seconds of training, steps, passes, the mean loss of the pass, the score after it.

All but the seconds are the same in two runs with one seed.
"""


class Counts(run.Counts, kw_only=True):
    """How far a run is: steps, whole passes, seconds, and the sum of the losses of the present pass."""

    steps: int = 0
    passes: int = 0
    losses: float = 0.0
