"""The options of the snake workload: `gpusched launch snake` makes a command-line option of each field."""

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

__all__ = ["Algo", "Inference", "Inputs", "Network", "Settings"]

Algo = Literal["a2c", "qlearning", "genetic"]
Network = Literal["original", "small"]
Inference = Literal["actor", "learner"]
Inputs = Literal["frame", "paths"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of the workload can be told. A limit of 0 is no limit."""

    algo: Annotated[
        Algo,
        Meta(
            description="a2c: advantage actor-critic; qlearning: double Q-learning with a replay memory; genetic: "
            "mutations and selection, where learner and actors exchange only seeds and scores"
        ),
    ] = "a2c"
    network: Annotated[
        Network, Meta(description="small: learns fast on a CPU; original: 1.2 million weights, and sees the frame only")
    ] = "small"
    inputs: Annotated[
        Inputs,
        Meta(
            description="what the network small sees; frame: the frame; paths: also its hunger, and of each move where "
            "it leads: that is path knowledge made by hand"
        ),
    ] = "paths"
    inference: Annotated[
        Inference,
        Meta(
            description="who asks the network what to play; actor: each actor, with weights of its own; learner: the "
            "learner, for all at once, and actors take no device memory"
        ),
    ] = "actor"
    minutes: Annotated[float, Meta(description="stop after so many minutes of training; 0: go on", ge=0)] = 0
    steps: Annotated[int, Meta(description="stop after so many environment steps; 0: go on", ge=0)] = 0
    target: Annotated[
        float,
        Meta(description="stop at this mean score of the last 1,000 games (genetic: a generation's); 0: go on", ge=0),
    ] = 0
    games: Annotated[
        int,
        Meta(
            description="games that one actor plays at once; 0: 1,024 shared among the actors, 512 with qlearning; "
            "with original 64 each",
            ge=0,
            le=65536,
        ),
    ] = 0
    rollout: Annotated[
        int,
        Meta(description="steps of each game in one batch; 0: 32, with original 16", ge=0, le=1024),
    ] = 0
    learning_rate: Annotated[float, Meta(description="step size of Adam", gt=0, le=1)] = 0.001
    discount: Annotated[float, Meta(description="worth of a fruit one step later", ge=0, le=1)] = 0.995
    entropy: Annotated[float, Meta(description="weight of the policy's entropy in the loss", ge=0, le=1)] = 0.01
    population: Annotated[int, Meta(description="genomes of a generation, with --algo genetic", ge=2, le=65536)] = 128
    trials: Annotated[int, Meta(description="games of each genome, with --algo genetic", ge=1, le=65536)] = 16
    seed: Annotated[int, Meta(description="what the run's random numbers start from", ge=0, lt=2**32)] = 0
    weights: Annotated[str, Meta(description="file of saved weights to start from")] = ""
    evaluate: Annotated[
        str, Meta(description="file of saved weights to play 256 greedy games with; nothing is learnt, no actor plays")
    ] = ""

    @property
    def seen(self) -> Inputs:
        """What the network sees."""
        return self.inputs if self.network == "small" and self.algo != "genetic" else "frame"

    def games_of(self, actors: int) -> int:
        """Return how many games each of so many actors plays at once."""
        if self.games:
            return self.games
        if self.network == "original":
            return _ORIGINAL_GAMES
        return max(_FEWEST_GAMES, (_GAMES if self.algo == "a2c" else _GAMES_OF_QLEARNING) // actors)

    @property
    def steps_of_rollout(self) -> int:
        """How many steps of each game are a batch."""
        return self.rollout or (_ORIGINAL_ROLLOUT if self.network == "original" else _ROLLOUT)

    def check(self) -> None:
        """Raise ValueError for what can be seen to be wrong before anything starts; `gpusched launch` asks."""
        for name, algos in _ONLY_WITH.items():
            if self.algo not in algos and getattr(self, name) != _DEFAULT_OF[name]:
                raise ValueError(f"--{name.replace('_', '-')} goes with --algo {' or '.join(algos)}, not {self.algo}")
        for name in ("weights", "evaluate"):
            path = getattr(self, name)
            if path and not Path(path).is_file():
                raise ValueError(f"--{name}: there is no file {path}")
        others = [name for name in _DEFAULT_OF if name != "evaluate" and getattr(self, name) != _DEFAULT_OF[name]]
        if self.evaluate and others:
            raise ValueError(f"--{others[0].replace('_', '-')} is for learning, and with --evaluate nothing is learnt")


_GAMES: Final = 1024
"""The more games a call of the network judges, the less of an actor's time the call itself takes."""
_GAMES_OF_QLEARNING: Final = 512
_FEWEST_GAMES: Final = 16
_ROLLOUT: Final = 32
_ORIGINAL_GAMES: Final = 64
_ORIGINAL_ROLLOUT: Final = 16
_ONLY_WITH: Final[dict[str, tuple[Algo, ...]]] = {
    "inference": ("a2c",),
    "inputs": ("a2c", "qlearning"),
    "games": ("a2c", "qlearning"),
    "rollout": ("a2c", "qlearning"),
    "learning_rate": ("a2c", "qlearning"),
    "discount": ("a2c", "qlearning"),
    "entropy": ("a2c",),
    "weights": ("a2c", "qlearning"),
    "population": ("genetic",),
    "trials": ("genetic",),
}
_DEFAULT_OF: Final = {field.name: field.default for field in msgspec.structs.fields(Settings)}
