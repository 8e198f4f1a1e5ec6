"""A genome is a chain of seeds; here it becomes numbers. Whoever has the chain has the genome, bit for bit.

The first seed draws the numbers, each later one a mutation that is added to them (Such et al. 2017, arXiv:1712.06567).
Only element by element: a product of matrices is rounded by how many threads make it, and an actor with two threads
would then play another genome than one with three.
"""

from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.genetic.plain import rounded
from workloads.snake.genetic.spread import Numbers, Spread

__all__ = ["Chain", "Genomes", "seed_of_games"]

Chain = NDArray[np.int64]
"""The seeds [n] of a genome, first to last."""

_KEPT: Final = 48
"""The parents of two generations of 128 genomes, and of those that go on: what one generation is made of."""

_STRONGEST: Final = 1.0
_HALVINGS: Final = 4.0


def seed_of_games(seed: int, generation: int) -> int:
    """Return the seed of the games that all genomes of a generation play."""
    return int(np.random.SeedSequence([seed, generation]).generate_state(1)[0])


class Genomes:
    """Makes genomes of chains. A child costs one mutation and not its whole chain: the last parents are kept.

    Children are not: most have none themselves, and would be in the way of the parents.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._kept: OrderedDict[bytes, Numbers] = OrderedDict()

    def weights(self, chain: Chain) -> dict[str, Numbers]:
        """Return the weights of a genome by name, rounded as plain.py needs them. Raises ValueError for no chain."""
        return self._spread.weights(rounded(self._numbers(chain)))

    def _numbers(self, chain: Chain) -> Numbers:
        if chain.ndim != 1 or chain.dtype != np.int64 or not chain.size or chain.min() < 0:
            raise ValueError(f"{chain.dtype} {chain.shape} is no chain of seeds")
        known = len(chain)
        while known and chain[:known].tobytes() not in self._kept:
            known -= 1
        numbers = self._kept[chain[:known].tobytes()] if known else self._first(int(chain[0]))
        if known:
            self._keep(chain[:known], numbers)
        for length in range(max(known, 1), len(chain)):
            if length == len(chain) - 1:
                self._keep(chain[:length], numbers)
            numbers = self._mutated(numbers, int(chain[length]))
        return numbers

    def _keep(self, parent: Chain, numbers: Numbers) -> None:
        key = parent.tobytes()
        self._kept[key] = numbers
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _first(self, seed: int) -> Numbers:
        random = np.random.Generator(np.random.Philox(seed))
        return random.standard_normal(self._spread.size, np.float32) * self._spread.first

    def _mutated(self, numbers: Numbers, seed: int) -> Numbers:
        """Add noise whose strength is drawn, too: strong ones find something new, weak ones improve on it."""
        random = np.random.Generator(np.random.Philox(seed))
        strength = np.float32(_STRONGEST * 2.0 ** -random.uniform(0.0, _HALVINGS))
        return numbers + random.standard_normal(self._spread.size, np.float32) * (self._spread.later * strength)
