"""Which samples a step takes: a function of seed and step, and of nothing else."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batches"]


class Batches:
    """Steps of `batch` of `samples`, pass after pass, each in an order of its own; its last few may fill no batch."""

    def __init__(self, samples: int, batch: int, seed: int) -> None:
        """Raises ValueError where there are fewer samples than one batch has."""
        if batch > samples:
            raise ValueError(f"--batch: {batch:,} is more than the {samples:,} samples that there are")
        self._samples, self._batch, self._seed = samples, batch, seed
        self._pass, self._order = 0, self._order_of(0)

    @property
    def steps(self) -> int:
        """How many steps one pass has."""
        return self._samples // self._batch

    def at(self, step: int) -> NDArray[np.int64]:
        """Return the indices [batch] of the step, counted from 0 over all passes."""
        number, place = divmod(step, self.steps)
        if number != self._pass:
            self._pass, self._order = number, self._order_of(number)
        return self._order[place * self._batch : (place + 1) * self._batch]

    def _order_of(self, number: int) -> NDArray[np.int64]:
        return np.random.default_rng([self._seed, number]).permutation(self._samples)
