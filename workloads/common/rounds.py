"""Synchronous rounds: each actor's contribution, what the learner waits for, and the average. They know no network."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Never, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpusched.channel import Actor, Batch, Learner
from workloads.common.weights import Vector, Weights

__all__ = ["Contribution", "InRounds", "Round", "contribute", "hold_rounds", "packed"]

_LOOK_UP_EVERY_S: Final = 0.5
_PATIENCE_S: Final = 5.0
"""How long a round may take before it is reported whom it waits for."""

Meta = Mapping[str, int | float]


class Contribution(msgspec.Struct, frozen=True, eq=False):
    """An actor's part of a round: its weights or its gradient [size], of how many samples, and their mean loss.

    There may be no samples: an actor may have learnt from what it had before. Then it counts as one with a sample.
    `score`: how good the actor is, if it knows that.
    """

    vector: Vector
    samples: int
    loss: float
    score: float | None = None


def contribute(channel: Actor, rank: int, actors: int, contribution: Callable[[int, Vector], Contribution]) -> Never:
    """Contribute for ever, once for each version of the weights. Raises LearnerGone when the job is over.

    The round comes with the weights: versions are raised when a learner is restarted, rounds are not.
    """
    version = 0
    while True:
        weights = channel.weights(newer_than=version)
        version, number = weights.version, int(weights.arrays["round"])
        arrays, meta = packed(contribution(number, weights.arrays["weights"]), number, rank, actors)
        channel.send(arrays, version=version, meta=meta)


class InRounds(Protocol):
    """A run that goes on in rounds."""

    @property
    def done(self) -> bool:
        """Whether it is over."""

    @property
    def rounds(self) -> int:
        """How many rounds it has behind it."""

    @property
    def weights(self) -> Weights:
        """The weights that the next round begins from."""

    def take(self, done: "Round") -> None:
        """Go on from the average of a round."""

    def keep(self, note: str | None = None) -> None:
        """Report, with a note, and save, each when it is time."""


def hold_rounds(run: InRounds, channel: Learner) -> None:
    """Hold one round after the other until the run is done. Raises ValueError for a batch that is no contribution."""
    while not run.done:
        present, began = Round(run.rounds + 1, run.weights.size), time.monotonic()
        channel.publish({"round": np.array(present.number), "weights": run.weights.get_flat()})
        while not (present.whole or run.done):
            batch = channel.get(_LOOK_UP_EVERY_S)
            if batch is not None:
                present.add(batch)
            late = not present.whole and time.monotonic() - began >= _PATIENCE_S
            run.keep(present.waits_for if late else None)
        if present.whole:
            run.take(present)


def packed(part: Contribution, number: int, rank: int, actors: int) -> tuple[dict[str, NDArray[Any]], Meta]:
    """Return what an actor sends of its part of round `number`: arrays, and what is said beside them."""
    meta = {"round": number, "rank": rank, "actors": actors, "samples": part.samples, "loss": part.loss}
    return {"vector": part.vector}, meta if part.score is None else {**meta, "score": part.score}


class Round:
    """One round, `number` from 1, of the contributions [size] of all actors. The average is that of ranks in order.

    How many actors there are each of them says: the launch tells it them, and not the learner.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self._size = size
        self._actors = 0
        self._parts: dict[int, Contribution] = {}

    def add(self, batch: Batch) -> None:
        """Take a contribution; one for another round, and a second one of an actor, is left out.

        Raises ValueError for a batch that is none, or one of an actor that is of another launch: without it the round
        would never be whole.
        """
        number, rank, actors, part = _unpacked(batch, self._size)
        if not 0 <= rank < actors or self._actors not in {0, actors}:
            raise ValueError(f"{batch.actor} says that it is actor {rank} of {actors}, not of {self._actors}")
        self._actors = actors
        if number == self.number:
            self._parts.setdefault(rank, part)

    @property
    def whole(self) -> bool:
        """Whether all have contributed."""
        return 0 < self._actors == len(self._parts)

    @property
    def missing(self) -> list[int]:
        """The ranks of the actors that have not contributed; empty before the first has said how many there are."""
        return [rank for rank in range(self._actors) if rank not in self._parts]

    @property
    def waits_for(self) -> str:
        """In words for people, whom the round waits for."""
        missing = ", ".join(f"actor.{rank}" for rank in self.missing) or "the first actor"
        return f"round {self.number:,} waits for {missing}"

    @property
    def parts(self) -> list[Contribution]:
        """What was contributed, in the order of ranks."""
        return [self._parts[rank] for rank in sorted(self._parts)]

    @property
    def samples(self) -> int:
        """How many samples all contributions are of."""
        return sum(part.samples for part in self.parts)

    @property
    def loss(self) -> float:
        """The mean loss of all samples."""
        return float(np.average([part.loss for part in self.parts], weights=self._weights))

    def average(self) -> Vector:
        """Return the mean [size] of the contributions, each weighted by its samples, and by 1 if it has none."""
        vectors = np.stack([part.vector for part in self.parts])
        return np.average(vectors.astype(np.float64), axis=0, weights=self._weights).astype(np.float32)

    @property
    def _weights(self) -> list[int]:
        return [max(1, part.samples) for part in self.parts]


def _unpacked(batch: Batch, size: int) -> tuple[int, int, int, Contribution]:
    """Return round, rank, actors and contribution. Raises ValueError."""
    try:
        number, rank, actors, samples = (int(batch.meta[name]) for name in ("round", "rank", "actors", "samples"))
        vector, loss, score = batch.arrays["vector"], float(batch.meta["loss"]), batch.meta.get("score")
    except KeyError as error:
        raise ValueError(f"a batch of {batch.actor} is no contribution: it has no {error.args[0]!r}") from None
    if vector.shape != (size,) or vector.dtype != np.float32 or samples < 0:
        told = f"{vector.dtype} {vector.shape} of {samples} samples"
        raise ValueError(f"a batch of {batch.actor} is no contribution: {told}, not float32 ({size},)")
    return number, rank, actors, Contribution(vector, samples, loss, None if score is None else float(score))
