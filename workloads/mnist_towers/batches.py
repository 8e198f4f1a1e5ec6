"""Which samples a step takes: a function of seed and step, and of nothing else."""

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["Batches"]


class Batches(msgspec.Struct, frozen=True):
    """Steps of `batch` of `samples`, pass after pass, each in an order of its own; its last few may fill no batch.

    Raises ValueError where there are fewer samples than one batch has.
    """

    samples: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch > self.samples:
            raise ValueError(f"--batch: {self.batch:,} is more than the {self.samples:,} samples that there are")

    @property
    def steps(self) -> int:
        """How many steps one pass has."""
        return self.samples // self.batch

    def at(self, step: int) -> NDArray[np.int64]:
        """Return the indices [batch] of the step, counted from 0 over all passes."""
        number, place = divmod(step, self.steps)
        order = np.random.default_rng([self.seed, number]).permutation(self.samples)
        return order[place * self.batch : (place + 1) * self.batch]
