"""The learner's side of a genetic run: who plays which genome. It knows actors by what they ask, and no network.

An actor asks, with the scores of the genome that it has played, for the next one. When all genomes of a generation are
with somebody, whoever asks gets the one that was given out longest ago: so one that an actor took into its grave
comes from another, nobody has to know who died, and the scores of a genome that two have played are the same.
"""

import sys
from collections import deque

import numpy as np

from gpusched.channel import Batch, Learner
from workloads.snake.algorithm import Played
from workloads.snake.genetic.algorithm import Evaluation, Genetic

__all__ = ["Breeding"]


class Breeding:
    """Answers asks with genomes, and gives what each of them scored, once."""

    def __init__(self, channel: Learner, genetic: Genetic) -> None:
        self._channel, self._genetic = channel, genetic
        self._waiting: Batch | None = None
        self._generation = -1
        self._to_give: deque[int] = deque()

    def next(self, timeout: float) -> Played | None:
        """Return the next scores, None if none come that are wanted; say so, and leave it out, if an ask is none."""
        batch = self._channel.get(timeout)
        if batch is None:
            return None
        try:
            evaluation = evaluation_from(batch)
            wanted = evaluation is not None and self._genetic.awaits(evaluation)
        except ValueError as error:
            print(f"an ask of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
            if batch.asks:
                self._channel.answer(batch, {})  # so that nobody waits for it
            return None
        self._waiting = batch
        if evaluation is None or not wanted:
            self.learnt()
            return None
        return Played(batch.actor, evaluation)

    def learnt(self) -> None:
        """Give whoever asked last a genome, now that its scores are known and the next generation may have begun."""
        if self._waiting is None:
            return
        place = self._next_place()
        where = np.array([self._genetic.generation, place], np.int64)
        self._channel.answer(self._waiting, {"chain": self._genetic.chain(place), "where": where})
        self._waiting = None

    def _next_place(self) -> int:
        if self._generation != self._genetic.generation:
            self._generation = self._genetic.generation
            self._to_give = deque(self._genetic.not_played)
        while not self._genetic.waits_for(self._to_give[0]):
            self._to_give.popleft()
        self._to_give.rotate(-1)  # to the end, where it waits for its scores, or to be given again
        return self._to_give[-1]


def evaluation_from(batch: Batch) -> Evaluation | None:
    """Return the scores that came with an ask, None with an actor's first. Raises ValueError if they are none."""
    if not batch.asks:
        raise ValueError("it waits for no answer")
    if not batch.meta:
        return None
    generation, place, steps = (batch.meta.get(name) for name in ("generation", "place", "steps"))
    if not (isinstance(generation, int) and isinstance(place, int) and isinstance(steps, int)):
        raise ValueError(  # noqa: TRY004 (what travelled is wrong, not a type of ours)
            f"it numbers its genome {generation!r}, {place!r}, and its steps {steps!r}"
        )
    scores = batch.arrays.get("scores")
    if scores is None or scores.dtype != np.int64 or scores.ndim != 1:
        raise ValueError("it holds no scores")
    return Evaluation(generation, place, scores.copy(), steps)  # the ask's own memory goes back to its actor
