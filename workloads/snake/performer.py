"""An actor's side of a genetic run: makes the genomes that it is given, and plays them. breeding.py is the other."""

from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from gpusched.channel import Actor, ChannelError
from workloads.snake.evaluate import Watch, play_greedily
from workloads.snake.genetic import games_of, genomes_of
from workloads.snake.networks import build, take_weights
from workloads.snake.settings import Settings
from workloads.snake.vector import VectorSnake

__all__ = ["play_genomes"]


def play_genomes(channel: Actor, settings: Settings, see: Watch | None) -> Never:
    """Play the genomes that the learner gives, for ever. Raises LearnerGone when the job is over.

    Raises ChannelError if the learner did not understand. One that is gone is asked the same again when it is back.
    """
    model = build(settings.network)
    genomes = genomes_of(model, settings.network)
    arrays: dict[str, NDArray[np.int64]] = {}
    meta: dict[str, int] = {}
    while True:
        answer = channel.ask(arrays, meta=meta)
        told = answer.wait() if answer is not None else None
        if told is None:
            continue
        generation, place = _where(told)
        take_weights(model, genomes.weights(told["chain"]))
        scores, steps = play_greedily(model, VectorSnake(settings.games, games_of(settings.seed, generation)), see)
        arrays, meta = {"scores": scores}, {"generation": generation, "place": place, "steps": steps}


def _where(told: dict[str, NDArray[Any]]) -> tuple[int, int]:
    if set(told) != {"chain", "where"} or told["where"].shape != (2,):
        raise ChannelError("the learner's answer holds no genome", "see its log")
    generation, place = told["where"].tolist()
    return generation, place
