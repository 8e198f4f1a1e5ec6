"""The learner: learns from whatever the actors play. `gpusched launch snake` starts it.

With `--inference actor` they send rollouts, and it publishes its weights; with `--inference learner` they ask it for
every step (central.py).

Owns what is in the run's directory: weights.npz, scores.csv, tensorboard/, and from the end on learning_curve.png,
game.gif and evaluation.json.
"""

import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import keras
import msgspec
import numpy as np
from numpy.typing import NDArray

from gpusched import contract
from gpusched.channel import ChannelError, Learner, Limits
from gpusched.frameworks import limit_memory
from workloads.snake import a2c
from workloads.snake.central import Central, Played
from workloads.snake.checkpoint import Counts, UnusableWeights, load, save
from workloads.snake.evaluate import describe, greedy_scores, record_game
from workloads.snake.networks import build, judge, named_weights
from workloads.snake.pictures import save_curve, save_game
from workloads.snake.player import HALVES
from workloads.snake.record import Record, read_rows
from workloads.snake.rollout import rollout_from
from workloads.snake.settings import Inference, Settings

__all__ = ["main"]

_WEIGHTS: Final = "weights.npz"
_REPORT_EVERY_S: Final = 2.0
_SAVE_EVERY_S: Final = 10.0
_LOOK_UP_EVERY_S: Final = 0.5
_GAMES_TO_EVALUATE: Final = 256
_IN_FLIGHT: Final[dict[Inference, int]] = {"actor": 1, "learner": HALVES}
"""A rollout that waits grows old while an actor plays the next: one is enough. An ask of each half may be out."""


class Training:
    """A network that learns, how far it is, and when it is done. Saves itself in `run_dir` and goes on from there."""

    def __init__(self, settings: Settings, run_dir: Path, attempt: int) -> None:
        """Raises UnusableWeights if there are weights to start from that cannot be used."""
        keras.utils.set_random_seed(settings.seed)
        self.model = build(settings.network)
        a2c.prepare(self.model, settings)
        self.counts = Counts(network=settings.network)
        self.stop_asked = False
        self._settings = settings
        self._run_dir = run_dir
        self._random = np.random.default_rng([settings.seed, attempt])
        if (run_dir / _WEIGHTS).exists():
            self.counts = load(run_dir / _WEIGHTS, self.model)
            print(f"going on from {run_dir / _WEIGHTS} after {self.counts.steps:,} steps", flush=True)
        elif settings.weights:
            load(Path(settings.weights), self.model)
            print(f"starting from {settings.weights}", flush=True)
        self._started = time.monotonic() - self.counts.seconds
        self.record = Record(run_dir, self.counts, time.monotonic)
        self._next_report = self._next_save = 0.0

    def learn(self, played: Played) -> None:
        """Learn from a rollout."""
        rollout = played.rollout
        a2c.update(self.model, rollout, self._settings.discount, self._random)
        self.counts.steps += rollout.steps
        self.counts.updates += 1
        self.counts.games += rollout.scores.size
        self.record.count(played.actor, rollout)

    def keep(self) -> None:
        """Report and save, each when it is time. A full disk costs what was to be written, not the training."""
        now = time.monotonic()
        self.counts.seconds = now - self._started
        try:
            if now >= self._next_report:
                self._next_report = now + _REPORT_EVERY_S
                self.record.report(self.counts)
            if now >= self._next_save:
                self._next_save = now + _SAVE_EVERY_S
                save(self._run_dir / _WEIGHTS, self.model, self.counts)
        except OSError as error:
            print(f"not written: {error}", file=sys.stderr, flush=True)

    def ask_to_stop(self) -> None:
        """End soon. Safe in a signal handler."""
        self.stop_asked = True

    @property
    def done(self) -> bool:
        """Whether somebody asked for the end or a limit of the settings is reached."""
        limits = self._settings
        return (
            self.stop_asked
            or 0 < limits.minutes * 60 <= self.counts.seconds
            or 0 < limits.steps <= self.counts.steps
            or 0 < limits.target <= self.record.settled_score
        )

    def finish(self) -> None:
        """Save and report for the last time; leave the pictures. Raises OSError if something cannot be written."""
        save(self._run_dir / _WEIGHTS, self.model, self.counts)
        self.record.report(self.counts)
        self.record.tell(self.counts, "drawing the curve and a game")
        self._draw()
        self.record.close()

    def _draw(self) -> None:
        title = f"Snake, the {self.counts.network} network"
        try:
            save_curve(read_rows(self._run_dir / "scores.csv"), self._run_dir / "learning_curve.png", title)
            save_game(record_game(self.model), self._run_dir / "game.gif")
        except ImportError as error:
            print(f"no picture: {error}; it comes with gpusched's extra `tensorflow`", file=sys.stderr, flush=True)

    def evaluate(self) -> None:
        """Play greedy games and leave what they gave."""
        self.record.tell(self.counts, f"playing {_GAMES_TO_EVALUATE} greedy games")
        scores = greedy_scores(self.model, _GAMES_TO_EVALUATE)
        save_evaluation(scores, self.counts, self._run_dir / "evaluation.json")
        self.record.tell(self.counts, describe(scores))


def main() -> None:
    """Learn until a limit of the settings is reached or SIGTERM comes; leave weights and pictures."""
    try:
        me, settings = contract.replica(), contract.settings(Settings)
        limit_memory()
        training = Training(settings, me.run_dir, me.attempt)
    except (ChannelError, UnusableWeights) as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: training.ask_to_stop())
    try:
        with Learner(limits=Limits(in_flight=_IN_FLIGHT[settings.inference])) as channel:
            run(training, source_of(training, channel, settings, me.attempt))
    except ChannelError as error:
        sys.exit(str(error))
    try:
        training.finish()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # all is saved: whoever asks for the end now gets it at once
        if not training.stop_asked:
            training.evaluate()
    except OSError as error:
        sys.exit(f"not written: {error}")


class Sent:
    """The rollouts of actors that play by themselves, with the weights that they are given."""

    def __init__(self, channel: Learner, model: keras.Model) -> None:
        self._channel, self._model = channel, model
        self.learnt()

    def next(self, timeout: float) -> Played | None:
        """Return the next rollout, None if none comes; say so, and leave it out, if a batch is none."""
        batch = self._channel.get(timeout)
        if batch is None:
            return None
        try:
            return Played(batch.actor, rollout_from(batch.arrays))
        except ValueError as error:
            print(f"a batch of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
            return None

    def learnt(self) -> None:
        """Give the actors the new weights."""
        self._channel.publish(named_weights(self._model))


def run(training: Training, source: Sent | Central) -> None:
    """Learn from rollouts in the order they come, whoever played them, until training is done."""
    while not training.done:
        played = source.next(_LOOK_UP_EVERY_S)
        if played is not None:
            training.learn(played)
            source.learnt()
        training.keep()


def source_of(training: Training, channel: Learner, settings: Settings, attempt: int) -> Sent | Central:
    """Return where rollouts come from."""
    if settings.inference == "actor":
        return Sent(channel, training.model)
    random = np.random.default_rng([settings.seed, attempt, 1])
    contract.tell_ready()
    return Central(channel, partial(judge, training.model), settings.rollout, random)


def save_evaluation(scores: NDArray[np.int64], counts: Counts, path: Path) -> None:
    """Write what a greedy evaluation gave as JSON."""
    result = {
        "games": scores.size,
        "mean": float(scores.mean()),
        "deviation": float(scores.std()),
        "least": int(scores.min()),
        "most": int(scores.max()),
        "steps": counts.steps,
        "seconds": counts.seconds,
    }
    path.write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
