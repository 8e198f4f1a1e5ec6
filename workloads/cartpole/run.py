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
from workloads.common.checkpoint import UnusableWeights, below, read_checkpoint, write_checkpoint
from workloads.common.curve import draw_curve
from workloads.common.evaluation import save_evaluation
from workloads.common.part import part_done
from workloads.common.record import Record, read_rows
from workloads.common.upkeep import Upkeep, told_if_not_written

__all__ = ["Run"]

_WEIGHTS: Final = "weights.npz"
_CURVE: Final = "scores.csv"
_TRAINING: Final = "training/"


class Run:
    """One run in `run_dir`: saves itself there, and goes on from there.

    weights.npz has the best weights under their own names, and under training/ all that training goes on from.
    """

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        """Raises UnusableWeights if there are weights to go on from that cannot be used."""
        self.training = Training(settings)
        self.counts = Counts()
        self.stop_asked = False
        self._settings = settings
        self._run_dir = run_dir
        self._best = self.training.weights.get()
        if (run_dir / _WEIGHTS).exists():
            self._go_on(run_dir / _WEIGHTS)
        self._started = time.monotonic() - self.counts.seconds
        self.record = Record(run_dir / _CURVE, COLUMNS, self.counts.steps, time.monotonic, "cartpole")
        self._note: str | None = None
        self._upkeep = Upkeep(self._report, self._write, time.monotonic)

    def judge(self, loss: float) -> None:
        """Play greedy games with the present weights, keep the best, and see whether that is good enough."""
        counts = self.counts
        counts.seconds = time.monotonic() - self._started
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

    def keep(self, note: str | None = None) -> None:
        """Report, with a note, and save, each when it is time."""
        self.counts.seconds = time.monotonic() - self._started
        self._note = note
        self._upkeep.keep()

    def save(self) -> None:
        """Save now. A full disk costs what was to be written, no more."""
        self._upkeep.save()

    def ask_to_stop(self) -> None:
        """End soon. Safe in a signal handler."""
        self.stop_asked = True

    @property
    def done(self) -> bool:
        """Whether it is solved, somebody asked for the end, or a limit of the settings is reached."""
        return self.stop_asked or self.counts.solved or self._part_done == 1

    @property
    def _part_done(self) -> float | None:
        limits = self._settings
        return part_done((limits.minutes * 60, self.counts.seconds), (limits.steps, self.counts.steps))

    def finish(self) -> None:
        """Save and report for the last time; leave the curve, and what the best weights are worth. Raises OSError."""
        self._write()
        self.record.report(self.counts.steps, self._part_done)
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
        self.record.report(self.counts.steps, self._part_done, self._note)

    def _write(self) -> None:
        training = {f"{_TRAINING}{name}": array for name, array in self.training.state().items()}
        write_checkpoint(self._run_dir / _WEIGHTS, {**self._best, **training}, self.counts)

    def _go_on(self, path: Path) -> None:
        arrays, self.counts = read_checkpoint(path, Counts)
        try:
            self.training.set_state(below(_TRAINING, arrays))
            self._best = {name: arrays[name] for name in self.training.weights.names}
        except (KeyError, ValueError) as error:
            raise UnusableWeights(f"{path}: {error}") from None
        print(f"going on from {path} after {self.counts.steps:,} steps", flush=True)
