"""A run as its learner has it: how far it is, how good, what is the best so far, and when it is done.

Owns what is in the run's directory: weights.npz, scores.csv, tensorboard/, and from the end on learning_curve.png and
evaluation.json. Knows neither of the two schemes, nor the channel.
"""

import sys
import time
from pathlib import Path
from typing import Final

from workloads.cartpole.evaluate import CHOOSES, GAMES, JUDGES, TELLS, describe, greedy_returns, surely
from workloads.cartpole.record import COLUMNS, Counts
from workloads.cartpole.settings import Settings
from workloads.cartpole.training import Training
from workloads.common.checkpoint import below, read_checkpoint, unusable_if_wrong, write_checkpoint
from workloads.common.curve import draw_curve
from workloads.common.evaluation import save_evaluation
from workloads.common.record import Record, read_rows
from workloads.common.rounds import Round
from workloads.common.run import Run
from workloads.common.upkeep import told_if_not_written
from workloads.common.weights import Weights

__all__ = ["CartPole"]

_CURVE: Final = "scores.csv"
_TRAINING: Final = "training/"


class CartPole(Run[Counts]):
    """One run. weights.npz has the best weights under their own names, and under training/ all that it goes on from."""

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        """Raises UnusableWeights if there are weights to go on from that cannot be used."""
        super().__init__(run_dir, Counts())
        self.training = Training(settings)
        self._settings = settings
        self._best = self.training.weights.get()
        self._go_on()
        self.record = Record(run_dir / _CURVE, COLUMNS, self.counts.steps, time.monotonic, "cartpole")

    @property
    def weights(self) -> Weights:
        """The weights that learn."""
        return self.training.weights

    @property
    def rounds(self) -> int:
        """How many rounds it has behind it."""
        return self.counts.updates

    def take(self, done: Round) -> None:
        """Go on from the average of a round; judge it, and save.

        It is saved before the next begins: whoever is killed, a learner never asks actors for a round that they have
        behind them, but for the last one, whose contribution they keep (averaged.py).
        """
        self.weights.set_flat(done.average())
        self.counts.updates = done.number
        self.counts.steps += done.samples
        for rank, part in enumerate(done.parts):
            self.record.count(f"actor.{rank}", part.samples, [] if part.score is None else [part.score])
        self.judge(done.loss)
        self.save()

    def judge(self, loss: float) -> None:
        """Play greedy games with the present weights, keep the best, and see whether that is good enough."""
        counts = self.counts
        self.count_seconds()
        weights = self.training.weights.get()
        returns = greedy_returns(weights, GAMES, CHOOSES)
        score, target = float(returns.mean()), self._settings.target
        if score >= counts.best:
            counts.best, self._best = score, weights
        if 0 < target <= surely(returns):  # chosen by these games; others have the last word
            counts.solved = bool(greedy_returns(weights, GAMES, JUDGES).mean() >= target)
            self._best = weights if counts.solved else self._best
        self.record.score = score
        with told_if_not_written():
            self.record.add((counts.seconds, counts.steps, counts.updates, loss, score))
            self.record.write()

    @property
    def done(self) -> bool:
        """Whether it is solved, somebody asked for the end, or a limit of the settings is reached."""
        return self.counts.solved or super().done

    @property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        limits = self._settings
        return (limits.minutes * 60, self.counts.seconds), (limits.steps, self.counts.steps)

    @property
    def _behind(self) -> str:
        return f"{self.counts.steps:,} steps"

    def finish(self) -> None:
        """Save and report for the last time; leave the curve, and what the best weights are worth. Raises OSError."""
        self._save()
        self.record.report(self.counts.steps, self.part_done)
        returns = greedy_returns(self._best, GAMES, TELLS)
        found = self._run_dir / "evaluation.json"
        save_evaluation(found, returns, steps=self.counts.steps, seconds=self.counts.seconds)
        self._draw()
        solved = "solved" if self.counts.solved else "not solved"
        self.record.tell(f"{solved} after {self.counts.steps:,} steps; {describe(returns)}", self.counts.steps)
        self.record.close()

    def _draw(self) -> None:
        rows = read_rows(self._run_dir / _CURVE)
        seconds, returns = [row[0] for row in rows], [row[4] for row in rows]
        titles = f"CartPole-v1, {self._settings.scheme}", f"{self.counts.steps:,} steps"
        labels = "seconds of training", f"mean return of {GAMES} greedy games"
        try:
            draw_curve(self._run_dir / "learning_curve.png", (seconds, returns), titles, labels)
        except ImportError as error:
            print(f"no picture: {error}; it comes with gpusched's extra `tensorflow`", file=sys.stderr, flush=True)

    def _report(self) -> None:
        self.record.report(self.counts.steps, self.part_done, self._note)

    def _save(self) -> None:
        training = {f"{_TRAINING}{name}": array for name, array in self.training.state().items()}
        write_checkpoint(self._path, {**self._best, **training}, self.counts)

    def _load(self, path: Path) -> Counts:
        arrays, counts = read_checkpoint(path, Counts)
        with unusable_if_wrong(path):
            self.training.set_state(below(_TRAINING, arrays))
            self._best = {name: arrays[name] for name in self.weights.names}
        return counts
