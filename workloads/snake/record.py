"""How training goes: what a run of snake adds to workloads.common.record. Knows no network."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from workloads.common import record
from workloads.snake.checkpoint import Counts

__all__ = ["MEAN_OVER", "Record"]

_COLUMNS: Final = ("seconds", "steps", "games", "mean_score", "steps_per_s")
MEAN_OVER: Final = 1000
_MEAN_OVER_OF_ACTOR: Final = 200


class Record(record.Record):
    """The record of one run in `run_dir`. Its score is the mean of the last `mean_over` games of all actors."""

    def __init__(self, run_dir: Path, counts: Counts, clock: Callable[[], float], mean_over: int = MEAN_OVER) -> None:
        super().__init__(run_dir / "scores.csv", _COLUMNS, counts.steps, clock, "snake", _MEAN_OVER_OF_ACTOR)
        self._scores: deque[float] = deque(maxlen=mean_over)
        self._last_line = counts.steps, counts.seconds

    @property
    def settled_score(self) -> float:
        """The mean score of the last games, 0 while there are fewer than it is to be over."""
        return self.score if self.score is not None and len(self._scores) == self._scores.maxlen else 0.0

    def count(self, replica: str, steps: int, scores: Sequence[float] = ()) -> None:
        """Take note of what `replica` played."""
        super().count(replica, steps, scores)
        self.remember(scores)

    def remember(self, scores: Sequence[float]) -> None:
        """Take note of scores [n], also of some that were counted before the learner was restarted."""
        self._scores.extend(scores)
        self.score = sum(self._scores) / len(self._scores) if self._scores else None

    def add_line(self, counts: Counts) -> None:
        """Write a line of the curve, if anything was played since the last one. Raises OSError."""
        steps, seconds = self._last_line
        if self.score is not None and counts.steps > steps:
            speed = (counts.steps - steps) / max(counts.seconds - seconds, 1e-9)
            self.add((counts.seconds, counts.steps, counts.games, round(self.score, 3), round(speed)))
            self._last_line = counts.steps, counts.seconds
        self.write()
