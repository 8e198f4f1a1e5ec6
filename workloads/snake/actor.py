"""An actor: plays with the learner's newest weights and sends what it played. `gpusched launch snake` starts it."""

import sys

import keras
import numpy as np

from gpusched import contract
from gpusched.channel import Actor, ChannelError, LearnerGone, Progress
from gpusched.frameworks import limit_memory
from workloads.snake.networks import build, take_weights
from workloads.snake.rollout import play
from workloads.snake.settings import Settings
from workloads.snake.spectator import Spectator
from workloads.snake.vector import VectorSnake

__all__ = ["main"]


def main() -> None:
    """Play until the learner says that the job is over."""
    try:
        me, settings = contract.replica(), contract.settings(Settings)
    except ChannelError as error:
        sys.exit(str(error))
    limit_memory()
    random = np.random.default_rng([settings.seed, me.rank, me.attempt])
    games = VectorSnake(settings.games, int(random.integers(2**32)))
    spectator = Spectator(Progress()) if me.rank == 0 else None
    try:
        with Actor() as channel:
            send_rollouts(channel, build(settings.network), games, settings.rollout, random, spectator)
    except LearnerGone:
        return
    except ChannelError as error:
        sys.exit(str(error))


def send_rollouts(
    channel: Actor,
    model: keras.Model,
    games: VectorSnake,
    steps: int,
    random: np.random.Generator,
    spectator: Spectator | None,
) -> None:
    """Play and send for ever. Raises LearnerGone when the job is over."""
    version = None
    while True:
        weights = channel.weights()
        if weights.version != version:
            take_weights(model, weights.arrays)
            version = weights.version
        rollout = play(model, games, steps, random)
        if spectator is not None:
            spectator.see(rollout.frames[:, 0], rollout.ended[:, 0])
        channel.send(rollout.arrays(), version=version)


if __name__ == "__main__":
    main()
