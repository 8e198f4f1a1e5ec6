"""The bench: every section, ours beside theirs, round by round. Run `python -m bench.run --help`.

What cannot be measured costs only its own row. Ctrl-C ends it with what is known by then, and leaves no process.
"""

import argparse
import compileall
import importlib
import pkgutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import bench.sections
from bench.busy import busy_part, busy_words
from bench.fresh import ROOT
from bench.place import here
from bench.report import print_results, write_results
from bench.results import RowResult, SectionResult
from bench.screen import Screen
from bench.section import Missing, Row, Section
from gpusched.linux.processes import become_subreaper, kill_descendants

__all__ = ["ORDER", "Measuring", "Tally", "compile_all", "measure_all", "seconds_left", "sections"]

ORDER: Final = (
    *("launch", "memory", "batch", "batch_busy", "reply", "reply_busy", "weights", "weights_busy"),
    *("play", "environment", "loop", "loop_busy", "cli"),
)
_ROUNDS_ASIDE: Final = 3
"""How often a row is measured at the most that no goal names."""

_INTERRUPTED: Final = 130
_END_PATIENCE_S: Final = 10.0


class Tally:
    """What one row of a section has given so far, and how long each measurement of it took."""

    def __init__(self, row: Row, rounds: int) -> None:
        self.row = row
        self.rounds = rounds if row.rounds is None else min(row.rounds, rounds)
        self.taken: list[float] = []
        self.note: str | None = None
        self.failed = False
        self._values: dict[str, list[float]] = {}

    @property
    def left(self) -> int:
        """How many more measurements are wanted: none after one that gave no figures."""
        return 0 if self.note else self.rounds - len(self.taken)

    def measure(self, *, quick: bool) -> None:
        """Measure once more. What goes wrong is the row's note."""
        began = time.perf_counter()
        try:
            measured = self.row.measure(quick)
        except Missing as missing:
            self.note = f"left out: {missing}"
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 (one peer that breaks must not cost the others)
            self.note = f"failed: {error or type(error).__name__}"
            self.failed = True
            return
        self.taken.append(time.perf_counter() - began)
        for figure, values in measured.items():
            self._values.setdefault(figure, []).extend(values if isinstance(values, Sequence) else [values])

    def result(self) -> RowResult:
        """Return what there is, and say so where that is less than was wanted."""
        values = {figure: tuple(float(value) for value in found) for figure, found in self._values.items()}
        note = self.note or (f"measured {len(self.taken)} of {self.rounds} times" if self.left else None)
        return RowResult(name=self.row.name, kind=self.row.kind, values=values, note=note)


class Measuring:
    """One section while it is measured."""

    def __init__(self, section: Section, *, quick: bool) -> None:
        self.section = section
        self.quick = quick
        self.rounds = section.quick_rounds if quick else section.rounds
        compared = {name for goal in section.goals for name in (goal.row, goal.than)}
        self.tallies = [
            Tally(row, self.rounds if row.name in compared else min(self.rounds, _ROUNDS_ASIDE)) for row in section.rows
        ]
        self._began = 0.0
        self._busy_part = 0.0
        self._ended: float | None = None

    def run(self, screen: Screen) -> None:
        """Measure each row once in each round, so that what disturbs the machine disturbs all alike."""
        self._busy_part = busy_part()
        self._began = time.perf_counter()
        try:
            with self.section.around():
                for number in range(self.rounds):
                    for tally in self.tallies:
                        if tally.left > 0 and number < tally.rounds:
                            screen.begins(self.section.name, tally.row.name, number + 1, tally.rounds)
                            tally.measure(quick=self.quick)
                            screen.ended(tally.note, tally.taken[-1] if tally.taken else 0.0)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a section that breaks must not cost the others)
            for tally in self.tallies:
                tally.note, tally.failed = tally.note or f"failed: {error or type(error).__name__}", True
        self._ended = time.perf_counter()

    def left_s(self) -> float:
        """Return the seconds that the rest of this section probably takes."""
        takes_s = self.section.quick_takes_s if self.quick else self.section.takes_s
        return 0.0 if self._ended else seconds_left(self.tallies, takes_s)

    def result(self) -> SectionResult:
        """Return what there is."""
        about = self.section
        return SectionResult(
            name=about.name,
            title=about.title,
            about=about.about,
            figures=about.figures,
            goals=about.goals,
            rows=tuple(tally.result() for tally in self.tallies),
            rounds=self.rounds,
            date=time.strftime("%Y-%m-%d"),
            seconds=round((self._ended or time.perf_counter()) - self._began, 1),
            place=here(),
            busy_part=round(self._busy_part, 3),
        )


def seconds_left(tallies: Sequence[Tally], takes_s: float) -> float:
    """Return what the measurements that are left will take: as long as the last of their row, or a part of takes_s."""
    part_s = takes_s / max(1, sum(tally.rounds for tally in tallies))
    return sum(tally.left * (tally.taken[-1] if tally.taken else part_s) for tally in tallies)


def sections(only: Sequence[str]) -> Iterator[Section]:
    """Give the sections of that name, all if there is none, in the order of the page. Exits for an unknown name."""
    found = [module.name for module in pkgutil.iter_modules(bench.sections.__path__)]
    if unknown := [name for name in only if name not in found]:
        sys.exit(f"no section {', '.join(unknown)}: there are {', '.join(found)}")
    known = [name for name in ORDER if name in found]
    for name in (*known, *(name for name in found if name not in known)):
        if not only or name in only:
            section = importlib.import_module(f"bench.sections.{name}").SECTION
            assert isinstance(section, Section)  # noqa: S101 (for the type checker)
            yield section


def main() -> int:
    """Do what was typed."""
    typed = _arguments()
    compile_all()
    return measure_all(list(sections(typed.only)), quick=typed.quick, write=typed.write)


def compile_all(root: Path = ROOT) -> None:
    """Have all of this project's code compiled, as pip leaves that of the peers: no process shall do it anew."""
    for folder in ("gpusched", "workloads", "bench"):
        compileall.compile_dir(root / folder, quiet=1)


def measure_all(chosen: Sequence[Section], *, quick: bool, write: bool) -> int:
    """Measure, print, replace what docs/benchmarks.md says of these sections if `write`, and return the exit code.

    0, or 1 if a row failed, or 130 after SIGINT or SIGTERM. No process is left then that was started here.
    """
    become_subreaper()
    signal.signal(signal.SIGTERM, _interrupt)
    print(busy_words(busy_part()), file=sys.stderr)
    measurings = [Measuring(section, quick=quick) for section in chosen if section.quick_takes_s or not quick]
    screen = Screen(lambda: sum(one.left_s() for one in measurings))
    ended, interrupted = [], False
    try:
        with screen:
            for measuring in measurings:
                measuring.run(screen)
                ended.append(measuring)
    except KeyboardInterrupt:
        interrupted = True
    for number in (signal.SIGINT, signal.SIGTERM):  # what follows is short
        signal.signal(number, signal.SIG_IGN)
    kill_descendants(_END_PATIENCE_S)
    begun = [one for one in measurings if one in ended or any(tally.taken for tally in one.tallies)]
    print_results([one.result() for one in begun], quick=quick)
    if write:
        write_results([one.result() for one in ended], ORDER)
    if interrupted:
        return _INTERRUPTED
    return int(any(tally.failed for one in ended for tally in one.tallies))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default=[], type=lambda text: text.split(","), metavar="A,B", help="only these sections"
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--quick", action="store_true", help="a first look, in six minutes; its figures are not for keeping"
    )
    ways.add_argument("--write", action="store_true", help="write docs/benchmarks.md and docs/benchmarks.json")
    return parser.parse_args()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
