"""Training as the learner has it, whatever the algorithm: limits, counts, what is saved, told and left at the end."""

import sys
import time
from pathlib import Path
from typing import Final

import keras
import numpy as np

from workloads.common.chance import chance_of
from workloads.common.part import part_done
from workloads.common.record import read_rows
from workloads.common.run import Run
from workloads.common.upkeep import told_if_not_written
from workloads.snake.a2c import ActorCritic
from workloads.snake.algorithm import Algorithm, Played
from workloads.snake.checkpoint import Counts, load, save
from workloads.snake.evaluate import GAMES, evaluate, greedy_games
from workloads.snake.genetic.algorithm import Genetic
from workloads.snake.networks import build
from workloads.snake.pictures import save_curve, save_game
from workloads.snake.qlearning import QLearning
from workloads.snake.record import MEAN_OVER, Record
from workloads.snake.settings import Algo, Settings

__all__ = ["Training"]

_USUAL_RUN_S: Final = 3600.0
_LAST_PART: Final = 0.9
"""Without a limit, or near a target, it goes on learning as it does six minutes before the end of an hour."""
_GAMES_TO_DRAW_FROM: Final = 5
"""Few, because a run that is stopped has only seconds left; an evaluation draws the median of its games instead."""


class Training(Run[Counts]):
    """A network that learns, whatever the algorithm."""

    def __init__(self, settings: Settings, run_dir: Path, attempt: int) -> None:
        """Raises UnusableWeights if there are weights to start from that cannot be used."""
        super().__init__(run_dir, Counts(network=settings.network, inputs=settings.seen, algo=settings.algo))
        keras.utils.set_random_seed(settings.seed)
        self.model = build(settings.network, settings.seen)
        self.algorithm = _algorithm(self.model, settings, chance_of("learner", settings.seed, attempt))
        self._settings = settings
        self._scores_before = np.empty(0, np.int64)
        if not self._go_on() and settings.weights:
            self._start_from(Path(settings.weights))
        self._in_generations = isinstance(self.algorithm, Genetic)
        mean_over = settings.population * settings.trials if self._in_generations else MEAN_OVER
        self.record = Record(run_dir, self.counts, time.monotonic, mean_over)
        self.record.remember(self._scores_before.tolist())
        self._generation_ended = self._target_reached = False

    def learn(self, played: Played) -> None:
        """Learn from what an actor played."""
        self._generation_ended = self.algorithm.learn(played.experience, self._progress())
        self.counts.steps += played.experience.steps
        self.counts.updates += 1
        self.counts.games += played.experience.games
        self.record.count(played.actor, played.experience.steps, played.experience.scores.tolist())
        if self._generation_ended or not self._in_generations:  # amid one, scores are of two of them
            self._target_reached = 0 < self._settings.target <= self.record.settled_score

    def keep(self, note: str | None = None) -> None:
        """Report and save, each when it is time.

        Where there are generations, the curve has a line for each of them, and no other.
        """
        self.count_seconds()
        if self._generation_ended:
            self._generation_ended = False
            with told_if_not_written():
                self.record.add_line(self.counts)
        super().keep(note)

    def _progress(self) -> float:
        """Return which part of the run is over, 0 to 1, by the limit that is nearest; without one an hour is a run.

        A target may stay out of reach: it alone never ends the learning.
        """
        of_limits, of_target = self.part_done, part_done((self._settings.target, self.record.settled_score))
        if of_target is None:
            return min(self.counts.seconds / _USUAL_RUN_S, _LAST_PART) if of_limits is None else of_limits
        return max(of_limits or 0.0, min(of_target, _LAST_PART))

    @property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        return (self._settings.minutes * 60, self.counts.seconds), (self._settings.steps, self.counts.steps)

    @property
    def _behind(self) -> str:
        return f"{self.counts.steps:,} steps"

    @property
    def done(self) -> bool:
        """Whether somebody asked for the end, or a limit or the target of the settings is reached."""
        return self._target_reached or super().done

    def finish(self) -> None:
        """Save and report for the last time; leave pictures. Raises OSError if something cannot be written."""
        self._save()
        self._report()
        self.record.tell("drawing the curve and a game", self.counts.steps)
        try:
            self._draw()
        except ImportError as error:
            print(f"no picture: {error}; it comes with gpusched's extra `tensorflow`", file=sys.stderr, flush=True)
        self.record.close()

    def _report(self) -> None:
        self.record.report(self.counts.steps, self.part_done)
        if not self._in_generations:
            self.record.add_line(self.counts)

    def _save(self) -> None:
        save(self._path, self.model, self.counts, self.algorithm.state())

    def _load(self, path: Path) -> Counts:
        counts, state = load(path, self.model, self._settings.algo)
        self._scores_before = self.algorithm.restore(state)
        return counts

    def _start_from(self, weights: Path) -> None:
        load(weights, self.model, self._settings.algo)
        print(f"starting from {weights}", flush=True)
        self.algorithm.restore({})

    def _draw(self) -> None:
        title = f"Snake, {self.counts.network} network, inputs {self.counts.inputs}, {_NAMES[self.counts.algo]}"
        save_curve(read_rows(self._run_dir / "scores.csv"), self._run_dir / "learning_curve.png", title)
        _, median_game = greedy_games(self.model, _GAMES_TO_DRAW_FROM)
        save_game(median_game, self._run_dir / "game.gif", self.counts.inputs)

    def evaluate(self) -> None:
        """Play greedy games; leave what they gave, and a picture of the median one. Raises OSError."""
        self.record.tell(f"playing {GAMES} greedy games", self.counts.steps)
        self.record.tell(evaluate(self.model, self.counts, self._run_dir), self.counts.steps)


_NAMES: Final[dict[Algo, str]] = {"a2c": "actor-critic", "qlearning": "Q-learning", "genetic": "genetic"}


def _algorithm(model: keras.Model, settings: Settings, random: np.random.Generator) -> Algorithm:
    if settings.algo == "a2c":
        return ActorCritic(model, settings, random)
    if settings.algo == "qlearning":
        return QLearning(model, settings, random)
    return Genetic(model, settings)
