"""What was measured of placement and queue, seed by seed; docs/queue.json is where it is kept."""

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.fresh import ROOT

__all__ = ["Found", "Measured", "Row", "load", "of_seeds", "ratio", "store"]

SOURCE: Final = ROOT / "docs" / "queue.json"

Row = tuple[dict[str, str | int | float], dict[str, float]]
"""What a figure is of, and the figures of one seed."""

_LARGEST: Final = frozenset(
    {"worst wait h", "worst share wait h", "worst one wait h", "worst large wait h", "latest h", "longest"}
)
"""Figures of which the largest of all seeds is shown."""

_SUMS: Final = frozenset({"heads past the bound", "beyond the bound"})
"""Figures of which the sum of all seeds is shown; of all others the mean."""

_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131),
    *(2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantiles of Student's t distribution, of 1 to 30 degrees of freedom."""

_NORMAL: Final = 1.96
_DIGITS: Final = 5


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one row, a value for each of its `seeds`; None: this seed has none. `of` says what it is of."""

    of: dict[str, str | int | float]
    date: str
    seeds: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]

    def of_seed(self, figure: str) -> dict[int, float]:
        """Return the values of a figure by seed; nothing if it was not measured."""
        pairs = zip(self.seeds, self.values.get(figure, ()), strict=False)
        return {seed: value for seed, value in pairs if value is not None}

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure, of some the largest value or the sum; None if it was not measured."""
        values = self.of_seed(figure).values()
        if not values:
            return None
        return max(values) if figure in _LARGEST else sum(values) if figure in _SUMS else statistics.fmean(values)

    def half_width(self, figure: str) -> float:
        """Return half of the 95 % interval of a mean, by Student's distribution; 0 for one value, and for no mean."""
        values = list(self.of_seed(figure).values())
        if len(values) < 2 or figure in _LARGEST | _SUMS:  # noqa: PLR2004 (a deviation takes two)
            return 0.0
        return float(_times(len(values)) * statistics.stdev(values) / len(values) ** 0.5)


Found = Mapping[str, Sequence[Measured]]
"""By what was measured: saturation, queue and so on."""


def ratio(ours: Measured, theirs: Measured, figure: str) -> tuple[float, float | None] | None:
    """Return the mean of ours by that of theirs, of the seeds that both have, and half of its 95 % interval if known.

    The seeds are paired, so that what makes a seed hard for both does not count: the interval is that of the ratio
    estimator (Cochran, Sampling Techniques, 1977, section 2.11). None: there are none, or theirs are all 0.
    """
    mine, other = ours.of_seed(figure), theirs.of_seed(figure)
    pairs = [(mine[seed], other[seed]) for seed in mine.keys() & other.keys()]
    whole = sum(y for _, y in pairs)
    if not whole:
        return None
    by, count = sum(x for x, _ in pairs) / whole, len(pairs)
    squares = sum((x - by * y) ** 2 for x, y in pairs)
    half = _times(count) * (squares / (count - 1) / count) ** 0.5 / (whole / count) if count > 1 else None
    return by, half


def _times(count: int) -> float:
    """Return by how many standard errors the mean of so many values may be off, with 95 % confidence."""
    return _STUDENT[count - 2] if count - 1 <= len(_STUDENT) else _NORMAL


def of_seeds(rows: Mapping[int, Iterable[Row]]) -> list[Measured]:
    """Return the rows of all seeds together, in the order in which they first came."""
    found: dict[tuple[tuple[str, str | int | float], ...], dict[int, dict[str, float]]] = {}
    for seed, of_one in rows.items():
        for labels, values in of_one:
            found.setdefault(tuple(labels.items()), {})[seed] = values
    return [_measured(dict(key), values, time.strftime("%Y-%m-%d")) for key, values in found.items()]


def _measured(of: dict[str, str | int | float], values: Mapping[int, Mapping[str, float]], date: str) -> Measured:
    figures = dict.fromkeys(name for each in values.values() for name in each)
    table = {name: tuple(_short(each.get(name)) for each in values.values()) for name in figures}
    return Measured(of=of, date=date, seeds=tuple(values), values=table)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def load(path: Path = SOURCE) -> Found:
    """Return what was measured so far, nothing without a file. Raises msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Measured]]) if path.exists() else {}


def store(what: str, rows: Sequence[Measured], path: Path = SOURCE, *, add: bool = False) -> None:
    """Replace those rows of docs/queue.json that were measured again; with `add` only their seeds.

    Raises OSError, and msgspec.DecodeError for a file that is none.
    """
    found = dict(load(path))
    before = {tuple(row.of.items()): row for row in found.get(what, ())}
    new = {tuple(row.of.items()): row for row in rows}
    if add:
        new = {key: _together(before.get(key), row) for key, row in new.items()}
    found[what] = list((before | new).values())
    parts = (f" {_json(name)}: [\n  {_lines(each)}\n ]" for name, each in found.items())
    temporary = path.with_name(f".{path.name}")
    temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    temporary.replace(path)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _lines(rows: Sequence[Measured]) -> str:
    return ",\n  ".join(map(_json, rows))


def _together(before: Measured | None, more: Measured) -> Measured:
    """Return the seeds of both; where both have one, `more` counts."""
    values: dict[int, dict[str, float]] = {}
    for row in filter(None, (before, more)):
        values |= {seed: {} for seed in row.seeds}
        for name in row.values:
            for seed, value in row.of_seed(name).items():
                values[seed][name] = value
    first = before.date.partition(" ")[0] if before else more.date
    date = more.date if first == more.date else f"{first} to {more.date}"
    return _measured(more.of, dict(sorted(values.items())), date)
