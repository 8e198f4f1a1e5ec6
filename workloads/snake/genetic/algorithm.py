"""The genetic algorithm: a generation of genomes, what each scored, and who has children. Knows no channel.

Truncation selection with elitism (Such et al. 2017, arXiv:1712.06567, algorithm 1): each child is a mutation of one of
the best, and the very best go on as they are. They play other games in each generation and are judged by all of them,
so that no stroke of luck stays on top. All that is drawn depends on the seed and the number of the generation
alone, and what a genome scores on both and the genome: so it matters neither who plays which genome, nor how often.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from workloads.common.weights import Weights
from workloads.snake.algorithm import Algorithm
from workloads.snake.genetic.genome import Chain, Genomes
from workloads.snake.genetic.spread import spread_over
from workloads.snake.settings import Network, Settings

__all__ = ["Evaluation", "Genetic", "genomes_of"]

_ONE_PARENT_OF: Final = 8
"""One of so many genomes has children."""
_ONE_STAYS_OF: Final = 16
"""One of so many genomes is in the next generation, too."""
_END: Final = -1
_NOT_PLAYED: Final = -1


class Evaluation(NamedTuple):
    """What genome `place` of `generation` scored, `scores` int64 [games], and in how many environment steps."""

    generation: int
    place: int
    scores: NDArray[np.int64]
    steps: int

    @property
    def games(self) -> int:
        """How many games these were."""
        return self.scores.size


def genomes_of(model: keras.Model, network: Network) -> Genomes:
    """Return what makes weights for `model` of chains."""
    return Genomes(spread_over(network, {name: array.shape for name, array in Weights(model).get().items()}))


class Genetic(Algorithm):
    """The present generation, counted from 0. The best genome of the former one is what `model` holds."""

    def __init__(self, model: keras.Model, settings: Settings) -> None:
        self._settings = settings
        self._weights = Weights(model)
        self._genomes = genomes_of(model, settings.network)
        self.generation = 0
        size = settings.population
        self._chains: list[Chain] = [np.array([seed], np.int64) for seed in self._seeds(size)]
        self._fruits, self._games = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._scores = np.full((size, settings.trials), _NOT_PLAYED, np.int64)
        self._missing = set(range(size))
        self._weights.set(self._genomes.weights(self._chains[0]))

    def chain(self, place: int) -> Chain:
        """Return a genome of this generation."""
        return self._chains[place]

    @property
    def not_played(self) -> list[int]:
        """The places of the genomes whose scores have not come yet."""
        return sorted(self._missing)

    def waits_for(self, place: int) -> bool:
        """Return whether the scores of that genome have not come yet."""
        return place in self._missing

    def awaits(self, evaluation: Evaluation) -> bool:
        """Return whether these scores are wanted: not those of a former generation, nor any a second time.

        Raises ValueError for what no genome can have scored.
        """
        if not 0 <= evaluation.place < len(self._chains) or evaluation.scores.shape != self._scores.shape[1:]:
            raise ValueError(f"genome {evaluation.place} cannot have scored {evaluation.scores.shape}")
        if evaluation.scores.min() < 0 or evaluation.steps < 0:
            raise ValueError(f"genome {evaluation.place} cannot have scored {evaluation.scores.min()}")
        return evaluation.generation == self.generation and self.waits_for(evaluation.place)

    def learn(self, evaluation: Evaluation, done: float) -> bool:
        """Take scores that are awaited; with the last ones begin the next generation, and return whether it was so."""
        del done
        self._scores[evaluation.place] = evaluation.scores
        self._missing.discard(evaluation.place)
        if self._missing:
            return False
        fruits, games = self._fruits + self._scores.sum(axis=1), self._games + self._scores.shape[1]
        best = np.argsort(-fruits / games, kind="stable")
        self.generation += 1
        size = len(self._chains)
        elite = best[: max(1, size // _ONE_STAYS_OF)]
        children = self._children([self._chains[place] for place in best], size - len(elite))
        self._chains = [*(self._chains[place] for place in elite), *children]
        self._fruits, self._games = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._fruits[: len(elite)], self._games[: len(elite)] = fruits[elite], games[elite]
        self._scores[:] = _NOT_PLAYED
        self._missing = set(range(size))
        self._weights.set(self._genomes.weights(self._chains[0]))
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that there is to save."""
        chains = np.full((len(self._chains), max(map(len, self._chains))), _END, np.int64)
        for row, chain in zip(chains, self._chains, strict=True):
            row[: len(chain)] = chain
        generation = np.array(self.generation)
        return {
            "chains": chains,
            "fruits": self._fruits,
            "games": self._games,
            "scores": self._scores,
            "generation": generation,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Go on from what was saved; return the scores of the genomes that have played already."""
        self._chains = [row[row != _END] for row in state["chains"]]
        self._fruits, self._games, self._scores = (state[name].copy() for name in ("fruits", "games", "scores"))
        self._missing = set(np.flatnonzero(self._scores[:, 0] == _NOT_PLAYED).tolist())
        self.generation = int(state["generation"])
        self._weights.set(self._genomes.weights(self._chains[0]))
        played: NDArray[np.int64] = self._scores[self._scores != _NOT_PLAYED]
        return played

    def _children(self, best: list[Chain], count: int) -> list[Chain]:
        parents = max(1, len(best) // _ONE_PARENT_OF)
        seeds = self._seeds(2 * count)
        of, mutations = seeds[:count] % parents, seeds[count:]
        return [np.append(best[parent], seed) for parent, seed in zip(of, mutations, strict=True)]

    def _seeds(self, count: int) -> NDArray[np.int64]:
        random = np.random.Generator(np.random.Philox([self._settings.seed, self.generation]))
        return random.integers(2**62, size=count)
