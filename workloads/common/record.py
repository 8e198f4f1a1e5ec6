"""How a run goes: to the launcher (the channel's progress), in a CSV file, and to TensorBoard. Knows no network."""

import csv
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tensorboardX import SummaryWriter

from gpusched.channel import Progress

__all__ = ["Record", "Row", "read_rows"]

Row = tuple[float, int, int, float, float]
"""A line of the CSV file: seconds of training, the number that training counts by, another one, and two curves."""


class Record:
    """The record of one run: the CSV file `path`, and beside it the launcher's progress and the folder tensorboard/.

    `columns` are the names of what a Row has, the file's first line. TensorBoard has the two curves below `group`. The
    run goes on at `step`: lines that a killed learner wrote after it last saved its weights are dropped, and will come
    again. `clock` gives seconds. The score of a replica is the mean of its last `mean_over`.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        step: int,
        clock: Callable[[], float],
        group: str,
        mean_over: int = 1,
    ) -> None:
        self.score: float | None = None
        """How good the run is, None as long as that is not known."""
        self._path, self._columns, self._group = path, columns, group
        self._clock, self._mean_over = clock, mean_over
        _write_lines(path, [columns, *(line for line in _lines(path) if int(line[1]) <= step)])
        self._lines: list[Sequence[object]] = []
        self._progress = Progress()
        self._board = SummaryWriter(str(path.parent / "tensorboard"), purge_step=step, flush_secs=10)
        self._steps_of: Counter[str] = Counter()
        self._scores_of: dict[str, deque[float]] = {}
        self._since, self._step = clock(), step

    def count(self, replica: str, steps: int, scores: Sequence[float] = ()) -> None:
        """Take note of steps that `replica` made, and of scores of its own, if it knows any."""
        self._steps_of[replica] += steps
        self._scores_of.setdefault(replica, deque(maxlen=self._mean_over)).extend(scores)

    def add(self, row: Row) -> None:
        """Add a line; write() writes it."""
        seconds, step, *_ = row
        self._lines.append((f"{seconds:.2f}", *row[1:]))
        for name, value in zip(self._columns[-2:], row[-2:], strict=True):
            self._board.add_scalar(f"{self._group}/{name}", value, step)

    def write(self) -> None:
        """Write the lines that are not written yet. Raises OSError."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerows(self._lines)
        self._lines.clear()

    def report(self, step: int, done: float | None, note: str | None = None) -> None:
        """Report how it goes: speeds are those since the last report."""
        now = self._clock()
        seconds = max(now - self._since, 1e-9)
        self._progress.report(
            step=step,
            steps_per_s=(step - self._step) / seconds,
            score=self.score,
            replicas={replica: self._numbers_of(replica, seconds) for replica in self._steps_of},
            note=note,
            done=done,
        )
        self._steps_of = Counter(dict.fromkeys(self._steps_of, 0))
        self._since, self._step = now, step

    def tell(self, note: str, step: int) -> None:
        """Put in words what happens when no more is counted."""
        print(note, flush=True)
        self._progress.report(step=step, score=self.score, note=note)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self._board.close()

    def _numbers_of(self, replica: str, seconds: float) -> dict[str, float]:
        scores = self._scores_of[replica]
        speed = {"steps_per_s": self._steps_of[replica] / seconds}
        return {**speed, "score": sum(scores) / len(scores)} if scores else speed


def read_rows(path: Path) -> list[Row]:
    """Return the lines of a CSV file, first to last; none if there is no file, and none that a crash cut short."""
    return [(float(line[0]), int(line[1]), int(line[2]), float(line[3]), float(line[4])) for line in _lines(path)]


def _lines(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = csv.reader(file)
        columns = next(lines, [])
        return [line for line in lines if len(line) == len(columns) and all(line)]


def _write_lines(path: Path, lines: Iterable[Sequence[object]]) -> None:
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
