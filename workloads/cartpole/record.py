"""How a run of cartpole goes, told: to the launcher, in scores.csv and to TensorBoard. Counts; knows no network."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from workloads.common.journal import Journal, read_lines

__all__ = ["Counts", "Record", "Row", "read_rows"]

Row = tuple[float, int, int, float, float]
"""A line of scores.csv: seconds of training, environment steps, updates, the loss, the mean return of greedy games.

With the scheme `average` all but the seconds are the same in two runs with one seed and one number of actors.
"""

_COLUMNS: Final = ("seconds", "steps", "updates", "loss", "mean_return")


class Counts(msgspec.Struct, kw_only=True):
    """How far a run is: environment steps, updates (weights that were published), seconds, whether it is solved.

    `best`: the best mean return of greedy games so far.
    """

    steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    best: float = 0.0
    solved: bool = False


class Record:
    """The record of one run in `run_dir`; `clock` gives seconds. It goes on where `counts` says that the run is."""

    def __init__(self, run_dir: Path, counts: Counts, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._journal = Journal(run_dir / "scores.csv", _COLUMNS, counts.steps)
        self._steps_of: Counter[str] = Counter()
        self._score_of: dict[str, float] = {}
        self._score: float | None = None
        self._since = clock()

    def count(self, actor: str, steps: int, score: float | None) -> None:
        """Take note of steps that `actor` played, and of the mean return of its own games, if it knows one."""
        self._steps_of[actor] += steps
        if score is not None:
            self._score_of[actor] = score

    def judged(self, counts: Counts, loss: float, score: float) -> None:
        """Write down the mean return of greedy games, and the loss before it. Raises OSError."""
        self._score = score
        line = (f"{counts.seconds:.2f}", counts.steps, counts.updates, repr(loss), repr(score))
        self._journal.add([line])
        self._journal.board.add_scalar("cartpole/mean_return", score, counts.steps)
        self._journal.board.add_scalar("cartpole/loss", loss, counts.steps)

    def report(self, counts: Counts, done: float | None, note: str | None = None) -> None:
        """Tell how it goes, and count anew."""
        seconds = max(self._clock() - self._since, 1e-9)
        replicas = {actor: self._numbers_of(actor, seconds) for actor in self._steps_of}
        speed = self._steps_of.total() / seconds
        self._journal.progress.report(
            step=counts.steps, steps_per_s=speed, score=self._score, replicas=replicas, note=note, done=done
        )
        self._steps_of = Counter(dict.fromkeys(self._steps_of, 0))
        self._since = self._clock()

    def tell(self, counts: Counts, note: str) -> None:
        """Tell in words what happens when no more steps are counted."""
        self._journal.tell(note, step=counts.steps, score=self._score)

    def close(self) -> None:
        """Write out what TensorBoard's writer still holds."""
        self._journal.close()

    def _numbers_of(self, actor: str, seconds: float) -> dict[str, float]:
        score = self._score_of.get(actor)
        return {"steps_per_s": self._steps_of[actor] / seconds} | ({} if score is None else {"score": score})


def read_rows(path: Path) -> list[Row]:
    """Return the lines of scores.csv, first to last; none if there is no file, and none that a crash cut short."""
    lines = read_lines(path, _COLUMNS)
    return [(float(line[0]), int(line[1]), int(line[2]), float(line[3]), float(line[4])) for line in lines]
