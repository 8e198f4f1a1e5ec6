"""The options of the cartpole workload: `gpusched launch cartpole` makes a command-line option of each field."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["Scheme", "Settings"]

Scheme = Literal["central", "average"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of the workload can be told. A limit of 0 is no limit."""

    scheme: Annotated[
        Scheme,
        Meta(
            description="who learns; central: the learner, from what the actors play; average: each actor, from what "
            "it plays itself, and the learner averages their weights"
        ),
    ] = "central"
    target: Annotated[
        float, Meta(description="stop when greedy games have this mean return beyond doubt; 0: go on", ge=0, le=500)
    ] = 475
    minutes: Annotated[float, Meta(description="stop after so many minutes of training; 0: go on", ge=0)] = 10
    steps: Annotated[int, Meta(description="stop after so many environment steps; 0: go on", ge=0)] = 0
    games: Annotated[int, Meta(description="games that one actor plays at once", ge=1, le=4096)] = 8
    play: Annotated[int, Meta(description="steps of each game between updates", ge=1, le=1024)] = 8
    updates: Annotated[int, Meta(description="steps of Adam after each --play steps", ge=1, le=1024)] = 16
    plays: Annotated[
        int, Meta(description="times that an actor plays and learns in a round, with --scheme average", ge=1, le=1024)
    ] = 8
    memory: Annotated[int, Meta(description="transitions that a replay memory holds", ge=1, le=10_000_000)] = 2000
    batch: Annotated[int, Meta(description="transitions that one step of Adam learns from", ge=1, le=65536)] = 64
    target_every: Annotated[
        int, Meta(description="steps of Adam after which the target network becomes the present one", ge=1)
    ] = 200
    learning_rate: Annotated[float, Meta(description="step size of Adam", gt=0, le=1)] = 0.001
    discount: Annotated[float, Meta(description="worth of a reward one step later", ge=0, le=1)] = 0.98
    epsilon: Annotated[float, Meta(description="how often the most curious game moves at random", ge=0, le=1)] = 0.8
    seed: Annotated[int, Meta(description="what the run's random numbers start from", ge=0, lt=2**32)] = 0

    def check(self) -> None:
        """Raise ValueError for what can be seen to be wrong before anything starts; `gpusched launch` asks."""
        if self.scheme == "central" and self.plays != Settings().plays:
            raise ValueError("--plays goes with --scheme average, not central")
