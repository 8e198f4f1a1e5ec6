"""An actor: plays and sends what it played. `gpusched launch snake` starts it.

With `--inference actor` it plays with the learner's newest weights; with `--inference learner` as the learner says, and
then it imports no framework (player.py). With `--algo genetic` it plays genomes, which it makes of their seeds.
"""

from typing import TYPE_CHECKING

import numpy as np

from gpusched import runtime
from gpusched.channel import Actor, Progress
from workloads.common.chance import chance_of
from workloads.common.ending import ends_with_reason
from workloads.snake.genetic.performer import play_genomes
from workloads.snake.player import play_as_told
from workloads.snake.settings import Settings
from workloads.snake.spectator import Spectator
from workloads.snake.vector import VectorSnake

if TYPE_CHECKING:
    import keras

    from workloads.snake.exploring import Exploring
    from workloads.snake.rollout import Playing

__all__ = ["main"]


@ends_with_reason()
def main() -> None:
    """Play until the learner says that the job is over."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    random = chance_of("actor", settings.seed, me.rank, me.attempt)
    spectator = Spectator(Progress()) if me.rank == 0 else None
    with Actor() as channel:
        if settings.algo == "genetic":
            play_genomes(channel, settings, None if spectator is None else spectator.see)
        elif settings.inference == "learner":
            play_as_told(channel, settings.games_of(me.role_count), random, spectator)
        else:
            play_by_itself(channel, settings, me.role_count, random, spectator)


def play_by_itself(
    channel: Actor, settings: Settings, actors: int, random: np.random.Generator, spectator: Spectator | None
) -> None:
    """Play with a network of its own, as one of so many `actors`. Raises LearnerGone when the job is over."""
    from gpusched.frameworks import limit_memory
    from workloads.snake.exploring import Exploring
    from workloads.snake.networks import build
    from workloads.snake.rollout import Playing

    limit_memory()
    games = VectorSnake(settings.games_of(actors), int(random.integers(2**32)))
    model = build(settings.network, settings.seen)
    playing = (Playing if settings.algo == "a2c" else Exploring)(model, games, random)
    send_played(channel, model, playing, settings.steps_of_rollout, spectator)


def send_played(
    channel: Actor, model: "keras.Model", playing: "Playing | Exploring", steps: int, spectator: Spectator | None
) -> None:
    """Play and send for ever. Raises LearnerGone when the job is over."""
    from workloads.common.weights import Weights

    held, version = Weights(model), None
    while True:
        weights = channel.weights()
        if weights.version != version:
            held.set(weights.arrays)
            version = weights.version
        played = playing.play(steps, None if spectator is None else spectator.see)
        channel.send(played.arrays(), version=version)


if __name__ == "__main__":
    main()
