"""An actor's side of a genetic run: makes the genomes that it is given, and plays them. breeding.py is the other."""

import os
from collections.abc import Callable
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from gpusched.channel import Actor, ChannelError
from workloads.snake.genetic.genome import Chain, Genomes, seed_of_games
from workloads.snake.genetic.plain import PlainNetwork
from workloads.snake.genetic.spread import spread_over
from workloads.snake.greedy import Choose, Watch, play_greedily
from workloads.snake.rules import MOVES
from workloads.snake.settings import Network, Settings
from workloads.snake.vector import VectorSnake

__all__ = ["play_genomes", "player_of"]


def player_of(network: Network) -> Callable[[Chain], Choose]:
    """Return what makes of a genome's chain who plays as it says. For `small` no framework is imported.

    Others are played in one thread: how many threads share a sum decides how it is rounded, and so perhaps a move.
    """
    if network == "small":
        genomes = Genomes(spread_over(network, {"policy/bias": (len(MOVES),)}))
        return lambda chain: PlainNetwork(genomes.weights(chain)).best
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1"))
    from gpusched.frameworks import limit_memory
    from workloads.common.weights import Weights
    from workloads.snake.genetic.algorithm import genomes_of
    from workloads.snake.networks import build, judge

    limit_memory()
    model = build(network)
    held, of_model = Weights(model), genomes_of(model, network)

    def shown(chain: Chain) -> Choose:
        held.set(of_model.weights(chain))
        return lambda frames, hunger: judge(model, frames, hunger).logits.argmax(axis=1)

    return shown


def play_genomes(channel: Actor, settings: Settings, see: Watch | None) -> Never:
    """Play the genomes that the learner gives, for ever. Raises LearnerGone when the job is over.

    Raises ChannelError if the learner did not understand. One that is gone is asked the same again when it is back.
    """
    player = player_of(settings.network)
    arrays: dict[str, NDArray[np.int64]] = {}
    meta: dict[str, int] = {}
    while True:
        answer = channel.ask(arrays, meta=meta)
        told = answer.wait() if answer is not None else None
        if told is None:
            continue
        generation, place = _where(told)
        games = VectorSnake(settings.trials, seed_of_games(settings.seed, generation))
        scores, steps = play_greedily(player(told["chain"]), games, see)
        arrays, meta = {"scores": scores}, {"generation": generation, "place": place, "steps": int(steps.sum())}


def _where(told: dict[str, NDArray[Any]]) -> tuple[int, int]:
    if set(told) != {"chain", "where"} or told["where"].shape != (2,):
        raise ChannelError("the learner's answer holds no genome", "see its log")
    generation, place = told["where"].tolist()
    return generation, place
