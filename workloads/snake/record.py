"""How training goes, told: to the launcher (through the channel's progress), in scores.csv and to TensorBoard.

Counts what happens between two reports; knows no network.
"""

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.common.journal import Journal, read_lines
from workloads.snake.algorithm import Experience
from workloads.snake.checkpoint import Counts

__all__ = ["MEAN_OVER", "Record", "Row", "read_rows"]

Row = tuple[float, int, int, float, float]
"""A line of scores.csv: seconds of training, environment steps, whole games, mean score, steps per second."""

_COLUMNS: Final = ("seconds", "steps", "games", "mean_score", "steps_per_s")
MEAN_OVER: Final = 1000
_MEAN_OVER_OF_ACTOR: Final = 200


class Record:
    """The record of one run in `run_dir`; `clock` gives seconds. It goes on where `counts` says that the run is.

    The score that is told is the mean of the last `mean_over` games.
    """

    def __init__(self, run_dir: Path, counts: Counts, clock: Callable[[], float], mean_over: int = MEAN_OVER) -> None:
        self._clock = clock
        self._journal = Journal(run_dir / "scores.csv", _COLUMNS, counts.steps)
        self._scores: deque[int] = deque(maxlen=mean_over)
        self._scores_of: dict[str, deque[int]] = {}
        self._steps_of: Counter[str] = Counter()
        self._since = clock()
        self._last_line = counts.steps, counts.seconds

    @property
    def mean_score(self) -> float | None:
        """The mean score of the last games, None before the first."""
        return float(np.mean(self._scores)) if self._scores else None

    @property
    def settled_score(self) -> float:
        """The mean score of the last games, 0 while there are fewer than it is to be over."""
        return float(np.mean(self._scores)) if len(self._scores) == self._scores.maxlen else 0.0

    def count(self, actor: str, played: Experience) -> None:
        """Take note of what `actor` played."""
        self._steps_of[actor] += played.steps
        self._scores.extend(played.scores.tolist())
        self._scores_of.setdefault(actor, deque(maxlen=_MEAN_OVER_OF_ACTOR)).extend(played.scores.tolist())

    def remember(self, scores: NDArray[np.int64]) -> None:
        """Take note of scores [n] that were counted before the learner was restarted."""
        self._scores.extend(scores.tolist())

    def report(self, counts: Counts, done: float | None) -> None:
        """Tell how it goes, and count anew."""
        seconds = max(self._clock() - self._since, 1e-9)
        speed = self._steps_of.total() / seconds
        replicas = {actor: self._numbers_of(actor, seconds) for actor in self._scores_of}
        self._journal.progress.report(
            step=counts.steps, steps_per_s=speed, score=self.mean_score, replicas=replicas, done=done
        )
        self._steps_of.clear()
        self._since = self._clock()

    def add_line(self, counts: Counts) -> None:
        """Write a line of the curve, if anything was played since the last one. Raises OSError."""
        (steps, seconds), score = self._last_line, self.mean_score
        if score is None or counts.steps == steps:
            return
        speed = (counts.steps - steps) / max(counts.seconds - seconds, 1e-9)
        self._journal.add([(f"{counts.seconds:.1f}", counts.steps, counts.games, f"{score:.3f}", f"{speed:.0f}")])
        self._journal.board.add_scalar("snake/mean_score", score, counts.steps)
        self._journal.board.add_scalar("snake/steps_per_s", speed, counts.steps)
        self._last_line = counts.steps, counts.seconds

    def tell(self, counts: Counts, note: str) -> None:
        """Tell in words what happens when no more steps are counted."""
        self._journal.tell(note, step=counts.steps, score=self.mean_score)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self._journal.close()

    def _numbers_of(self, actor: str, seconds: float) -> dict[str, float]:
        numbers = {"steps_per_s": self._steps_of[actor] / seconds}
        scores = self._scores_of[actor]
        return numbers | ({"score": float(np.mean(scores))} if scores else {})


def read_rows(path: Path) -> list[Row]:
    """Return the lines of scores.csv, first to last; none if there is no file.

    A line that a crash cut short is left out.
    """
    lines = read_lines(path, _COLUMNS)
    return [(float(line[0]), int(line[1]), int(line[2]), float(line[3]), float(line[4])) for line in lines]
