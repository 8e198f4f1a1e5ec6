"""What was measured, as values and as JSON: docs/benchmarks.json is the source that docs/benchmarks.md is made from."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from bench.section import Figure, Goal, Kind

__all__ = [
    "Place",
    "Results",
    "RowResult",
    "SectionResult",
    "Verdict",
    "load",
    "merged",
    "save",
    "times_better",
    "verdict",
]


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """All values that a row gave, by figure, first to last. `note` says why there are none, or fewer than wanted."""

    name: str
    kind: Kind
    values: Mapping[str, tuple[float, ...]] = {}
    note: str | None = None

    def median(self, figure: str) -> float | None:
        """Return the median of a figure, None if it was not measured."""
        values = self.values.get(figure)
        return statistics.median(values) if values else None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and the versions that something was measured with. Memory in GiB."""

    cpu: str
    cores: int
    memory_gib: int
    kernel: str
    versions: Mapping[str, str]


class SectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A section as it was measured: on which day (`date`), and for how many `seconds`. `rounds`: how often each row.

    `busy_part`: the part of the host's CPU time that others took when it began, 0 to 1; None: that was not measured.
    """

    name: str
    title: str
    about: str
    figures: Mapping[str, Figure]
    goals: tuple[Goal, ...]
    rows: tuple[RowResult, ...]
    rounds: int
    date: str
    seconds: float
    place: Place
    busy_part: float | None = None

    def row(self, name: str) -> RowResult | None:
        """Return the row of that name."""
        return next((row for row in self.rows if row.name == name), None)


class Results(msgspec.Struct, frozen=True):
    """All sections, in the order of the page."""

    sections: tuple[SectionResult, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Whether a goal is met, and the words for it. `got` and `wanted` are times, None for a bound."""

    state: Literal["met", "not met", "not measured"]
    words: str
    got: float | None = None
    wanted: float | None = None


def times_better(figure: Figure, ours: float, theirs: float) -> float:
    """Return how many times better `ours` is: 2 for half the seconds, and for twice the steps a second."""
    better, worse = (theirs, ours) if figure.better == "less" else (ours, theirs)
    return better / worse if worse else float("inf")


def verdict(goal: Goal, section: SectionResult) -> Verdict:
    """Return whether the medians of a section show what a goal wants: nothing, where a row has fewer than wanted."""
    figure, ours = section.figures[goal.figure], _whole(section, goal.row, goal.figure)
    if ours is None:
        return Verdict("not measured", f"not measured: no whole figure of {goal.row}")
    if goal.than is None:
        return _against_bound(figure, ours, goal.bound or 0.0)
    theirs = _whole(section, goal.than, goal.figure)
    if theirs is None:
        return Verdict("not measured", f"not measured: no whole figure of {goal.than}")
    got = times_better(figure, ours, theirs)
    state: Literal["met", "not met"] = "met" if got >= goal.times else "not met"
    if goal.times < 1 and figure.better == "less":
        words = f"{short(1 / got)} times as much, at most {short(1 / goal.times)} wanted"
    elif goal.times < 1:
        words = f"{short(got)} times as much, at least {short(goal.times)} wanted"
    else:
        words = f"{short(got)} times as good, at least {short(goal.times)} wanted"
    return Verdict(state, f"{state}: {words}", got, goal.times)


def _whole(section: SectionResult, name: str, figure: str) -> float | None:
    """Return the median of a row that was measured as often as it should."""
    row = section.row(name)
    return None if row is None or row.note else row.median(figure)


def _against_bound(figure: Figure, ours: float, bound: float) -> Verdict:
    met = ours <= bound if figure.better == "less" else ours >= bound
    limit = "at most" if figure.better == "less" else "at least"
    state: Literal["met", "not met"] = "met" if met else "not met"
    unit = f" {figure.unit}" if figure.unit else ""
    return Verdict(state, f"{state}: {short(ours)}{unit}, {limit} {short(bound)} wanted")


def short(value: float) -> str:
    """Return a number with three digits that count: 12,345; 123; 12.3; 1.23; 0.0123."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 (three digits stand before the point)
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.6f}".rstrip("0") if "e" in text else text


def merged(old: Results, new: Iterable[SectionResult], order: Iterable[str]) -> Results:
    """Return the old results with those sections replaced that were measured anew, by `order`, the unknown last."""
    sections = {section.name: section for section in (*old.sections, *new)}
    known = [name for name in order if name in sections]
    return Results(tuple(sections[name] for name in (*known, *(name for name in sections if name not in known))))


def load(path: Path) -> Results:
    """Return the results of a file, none if there is no file. Raises msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def save(path: Path, results: Results) -> None:
    """Write results as JSON that git shows line by line."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
