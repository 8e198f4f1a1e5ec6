"""What an actor has of its own with the scheme `average`: network, target network, memory, games, and where they are.

After each round all of it is saved, with the contribution, before that is sent. So an actor that is killed, at whatever
moment, goes on as if it had not been: it plays the same steps and draws the same samples.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np

from workloads.cartpole.explorer import Explorer, curiosities
from workloads.cartpole.games import Games
from workloads.cartpole.memory import Memory
from workloads.cartpole.settings import Settings
from workloads.cartpole.training import Training
from workloads.common.checkpoint import below, read_checkpoint, unusable_if_wrong, write_checkpoint
from workloads.common.rounds import Contribution
from workloads.common.upkeep import told_if_not_written
from workloads.common.weights import Vector

__all__ = ["AveragedActor"]


class Done(msgspec.Struct, kw_only=True):
    """The last round that is done, from 1, of how many steps of games, and its mean loss."""

    number: int = 0
    samples: int = 0
    loss: float = 0.0


class AveragedActor:
    """What actor `rank` of `actors` learns with by itself; it is kept in the file `path`, and goes on from there."""

    def __init__(self, settings: Settings, rank: int, actors: int, path: Path) -> None:
        """Raises UnusableWeights if there is a file that cannot be used."""
        self._settings = settings
        self._rank = rank
        self._path = path
        self._training = Training(settings)
        self._memory = Memory(settings.memory)
        random = self._random(0)
        epsilons = curiosities(settings.epsilon, settings.games, rank, actors)
        self._explorer = Explorer(Games(settings.games, random), epsilons, random)
        self._done = Done()
        self._vector = self._training.weights.get_flat()
        if path.exists():
            self._go_on()

    def contribution(self, number: int, weights: Vector) -> Contribution:
        """Return the part of round `number` that begins from `weights` [size]: play, learn, save, unless it is done.

        A full disk costs what was to be written, and that the next process of this name goes on alike. Raises
        ValueError for weights of another shape.
        """
        if number != self._done.number:
            if number != self._done.number + 1:
                lost = f"round {number:,} comes after round {self._done.number:,}: something saved was lost between"
                print(lost, file=sys.stderr, flush=True)
            self._learn(number, weights)
            self._save()
        return Contribution(self._vector, self._done.samples, self._done.loss, self._explorer.score)

    def _learn(self, number: int, weights: Vector) -> None:
        settings, training = self._settings, self._training
        random = self._random(number)
        self._explorer.draw_from(random)
        training.weights.set_flat(weights)
        losses, samples = [0.0], 0
        for _ in range(settings.plays):
            played = self._explorer.play(training.weights.get(), settings.play)
            self._memory.add(played)
            samples += len(played.actions)
            if self._memory.enough:
                losses.append(training.learn(self._memory.sample((settings.updates, settings.batch), random)))
        self._vector = training.weights.get_flat()
        self._done = Done(number=number, samples=samples, loss=float(np.mean(losses[1:] or losses)))

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self._settings.seed, self._rank, number])

    def _save(self) -> None:
        arrays = {f"{part}/{name}": array for part, one in self._parts().items() for name, array in one.state().items()}
        with told_if_not_written():
            write_checkpoint(self._path, arrays, self._done)

    def _go_on(self) -> None:
        arrays, self._done = read_checkpoint(self._path, Done)
        with unusable_if_wrong(self._path):
            for part, one in self._parts().items():
                one.set_state(below(f"{part}/", arrays))
        self._vector = self._training.weights.get_flat()
        print(f"going on from {self._path} after {self._done.number:,} rounds", flush=True)

    def _parts(self) -> dict[str, Training | Memory | Games]:
        return {"training": self._training, "memory": self._memory, "games": self._explorer.games}
