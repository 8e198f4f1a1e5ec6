"""How a run of averaging goes, told: to the launcher, in curve.csv and to TensorBoard. Counts; knows no network."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from workloads.common.journal import Journal, read_lines
from workloads.common.rounds import Round

__all__ = ["Counts", "Record", "Row", "read_rows"]

Row = tuple[float, int, int, float, float]
"""A line of curve.csv: seconds of training, rounds, samples, the mean loss of the round's samples, the score after it.

All but the seconds are the same in two runs with one seed and one number of actors.
"""

_COLUMNS: Final = ("seconds", "rounds", "samples", "loss", "score")


class Counts(msgspec.Struct, kw_only=True):
    """How far a run is: whole rounds, samples in them, seconds."""

    rounds: int = 0
    samples: int = 0
    seconds: float = 0.0


class Record:
    """The record of one run in `run_dir`; `clock` gives seconds. It goes on where `counts` says that the run is."""

    def __init__(self, run_dir: Path, counts: Counts, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._journal = Journal(run_dir / "curve.csv", _COLUMNS, counts.rounds)
        self._lines: list[tuple[object, ...]] = []
        self._samples_of: Counter[int] = Counter()
        self._rounds = 0
        self._score: float | None = None
        self._since = clock()

    def count(self, counts: Counts, done: Round, score: float) -> None:
        """Take note of a round that is done, the last of `counts`, and of the score after it."""
        self._lines.append((f"{counts.seconds:.2f}", counts.rounds, counts.samples, repr(done.loss), repr(score)))
        self._journal.board.add_scalar("averaging/loss", done.loss, counts.rounds)
        self._journal.board.add_scalar("averaging/score", score, counts.rounds)
        self._samples_of.update(done.samples_of)
        self._rounds += 1
        self._score = score

    def report(self, counts: Counts, done: float | None, note: str | None = None) -> None:
        """Tell how it goes, and count anew."""
        seconds = max(self._clock() - self._since, 1e-9)
        replicas = {f"actor.{rank}": {"steps_per_s": self._samples_of[rank] / seconds} for rank in self._samples_of}
        self._journal.progress.report(
            step=counts.rounds,
            steps_per_s=self._rounds / seconds,
            score=self._score,
            replicas=replicas,
            note=note,
            done=done,
        )
        self._samples_of = Counter(dict.fromkeys(self._samples_of, 0))
        self._rounds = 0
        self._since = self._clock()

    def write(self) -> None:
        """Write the lines of the rounds that are not written yet. Raises OSError."""
        self._journal.add(self._lines)
        self._lines.clear()

    def tell(self, counts: Counts, note: str) -> None:
        """Tell in words what happens when no more rounds are counted."""
        self._journal.tell(note, step=counts.rounds, score=self._score)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self._journal.close()


def read_rows(path: Path) -> list[Row]:
    """Return the lines of curve.csv, first to last; none if there is no file, and none that a crash cut short."""
    lines = read_lines(path, _COLUMNS)
    return [(float(line[0]), int(line[1]), int(line[2]), float(line[3]), float(line[4])) for line in lines]
