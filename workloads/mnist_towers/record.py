"""How a run goes, told: to the launcher, in curve.csv and to TensorBoard. Knows no device."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from workloads.common.journal import Journal, read_lines

__all__ = ["Counts", "Record", "Row", "read_rows"]

Row = tuple[float, int, int, float, float]
"""A line of curve.csv: seconds of training, steps, passes, the mean loss of the pass, the score after it.

All but the seconds are the same in two runs with one seed.
"""

_COLUMNS: Final = ("seconds", "steps", "passes", "loss", "score")


class Counts(msgspec.Struct, kw_only=True):
    """How far a run is: steps, whole passes, seconds, and the sum of the losses of the present pass."""

    steps: int = 0
    passes: int = 0
    seconds: float = 0.0
    losses: float = 0.0


class Record:
    """The record of one run in `run_dir`; `clock` gives seconds. It goes on where `counts` says that the run is."""

    def __init__(self, run_dir: Path, counts: Counts, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._journal = Journal(run_dir / "curve.csv", _COLUMNS, counts.steps)
        self._lines: list[tuple[object, ...]] = []
        self._score: float | None = None
        self._since, self._steps = clock(), counts.steps

    def count(self, counts: Counts, loss: float, score: float) -> None:
        """Take note of a pass that is done, the last of `counts`: its mean loss, and the score after it."""
        self._lines.append((f"{counts.seconds:.2f}", counts.steps, counts.passes, repr(loss), repr(score)))
        self._journal.board.add_scalar("towers/loss", loss, counts.steps)
        self._journal.board.add_scalar("towers/score", score, counts.steps)
        self._score = score

    def report(self, counts: Counts, done: float | None) -> None:
        """Tell how it goes."""
        now = self._clock()
        speed = (counts.steps - self._steps) / max(now - self._since, 1e-9)
        told: dict[str, float] = {"steps_per_s": speed} | ({} if self._score is None else {"score": self._score})
        self._journal.progress.report(
            step=counts.steps, steps_per_s=speed, score=self._score, replicas={"learner.0": told}, done=done
        )
        self._since, self._steps = now, counts.steps

    def write(self) -> None:
        """Write the lines of the passes that are not written yet. Raises OSError."""
        self._journal.add(self._lines)
        self._lines.clear()

    def tell(self, counts: Counts, note: str) -> None:
        """Tell in words what happens when no more steps are counted."""
        self._journal.tell(note, step=counts.steps, score=self._score)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self._journal.close()


def read_rows(path: Path) -> list[Row]:
    """Return the lines of curve.csv, first to last; none if there is no file, and none that a crash cut short."""
    lines = read_lines(path, _COLUMNS)
    return [(float(line[0]), int(line[1]), int(line[2]), float(line[3]), float(line[4])) for line in lines]
