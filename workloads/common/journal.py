"""Where a learner tells how training goes: to the launcher (the channel's progress), in a CSV file, to TensorBoard."""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tensorboardX import SummaryWriter

from gpusched.channel import Progress

__all__ = ["Journal", "read_lines"]


class Journal:
    """The CSV file `path`, and beside it the launcher's progress and the folder tensorboard/.

    `columns` are the names in the file's first line; the second is the number that training counts by, whole, and the
    run goes on at `step` of it. Lines that a killed learner wrote after it last saved its weights are dropped: they
    will come again.
    """

    def __init__(self, path: Path, columns: Sequence[str], step: int) -> None:
        self._path = path
        kept = [line for line in read_lines(path, columns) if int(line[1]) <= step]
        _write_lines(path, [columns, *kept])
        self.progress = Progress()
        self.board = SummaryWriter(str(path.parent / "tensorboard"), purge_step=step, flush_secs=10)

    def add(self, lines: Iterable[Sequence[object]]) -> None:
        """Append lines to the file. Raises OSError."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerows(lines)

    def tell(self, note: str, *, step: int, score: float | None) -> None:
        """Tell in words what happens when no more is counted."""
        print(note, flush=True)
        self.progress.report(step=step, score=score, note=note)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self.board.close()


def read_lines(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """Return the lines of the CSV file `path` below its `columns`, first to last; none if there is no file.

    A line that a crash cut short is left out.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [line for line in csv.reader(file) if len(line) == len(columns) and all(line) and line[0] != columns[0]]


def _write_lines(path: Path, lines: Iterable[Sequence[object]]) -> None:
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
