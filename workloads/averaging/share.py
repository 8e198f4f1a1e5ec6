"""Which samples an actor trains on, and in which order: a function of seed, rank and step, and of nothing else."""

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["Share"]


class Share(msgspec.Struct, frozen=True):
    """What actor `rank` of `actors` has of `samples`: each one in so many. It is gone through again and again.

    Each pass is in an order of its own, which begins from `seed`, the rank and the number of the pass. Raises
    ValueError where there is no sample for this actor.
    """

    samples: int
    rank: int
    actors: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < min(self.actors, self.samples):
            raise ValueError(f"actor {self.rank} of {self.actors} has no share of {self.samples:,} samples")

    def at(self, step: int) -> NDArray[np.int64]:
        """Return the indices of the batch for `step`, counted from 0 over all rounds; the last of a pass may be short.

        Steps come at the same batch whoever asks, and whatever was asked before.
        """
        own = np.arange(self.rank, self.samples, self.actors)
        number, place = divmod(step, -(-len(own) // self.batch))
        order = np.random.default_rng([self.seed, self.rank, number]).permutation(own)
        return order[place * self.batch : (place + 1) * self.batch]
