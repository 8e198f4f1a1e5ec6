"""What was measured of placement and queue, as a part of docs/benchmarks.md; docs/queue.json is its source."""

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.fresh import ROOT

__all__ = ["Found", "Measured", "Row", "load", "of_seeds", "part", "store"]

SOURCE: Final = ROOT / "docs" / "queue.json"
_EASY: Final = "EASY, limits 1 to 5 times too long"
_OURS: Final = "gpusched"
_AT_MOST: Final = (
    (8, 0.9, "gpusched, commands repeated, spread 0.5", "mean wait h", _EASY, 0.7),
    (8, 0.9, "gpusched, commands repeated, spread 1", "mean wait h", _EASY, 0.7),
    (8, 1.1, "gpusched, commands repeated, spread 0.5", "mean wait h", _EASY, 0.7),
    (8, 1.1, "gpusched, commands repeated, spread 1", "mean wait h", _EASY, 0.7),
    (8, 0.9, "gpusched, commands repeated, spread 0.5", "p95 wait h", _EASY, 1.0),
    (8, 0.9, "gpusched, commands repeated, spread 1", "p95 wait h", _EASY, 1.0),
    (8, 1.1, "gpusched, commands repeated, spread 0.5", "p95 wait h", _EASY, 1.0),
    (8, 1.1, "gpusched, commands repeated, spread 1", "p95 wait h", _EASY, 1.0),
    (8, 0.9, "gpusched, shapes", "mean wait h", _EASY, 1.5),
    (8, 1.1, "gpusched, shapes", "mean wait h", _EASY, 1.6),
    (64, 0.9, "gpusched, commands repeated, spread 0.5", "mean wait h", _EASY, 1.1),
    (64, 0.9, "gpusched, commands repeated, spread 1", "mean wait h", _EASY, 1.1),
    (64, 1.1, "gpusched, commands repeated, spread 0.5", "mean wait h", _EASY, 1.1),
    (64, 1.1, "gpusched, commands repeated, spread 1", "mean wait h", _EASY, 1.1),
    (64, 0.9, "gpusched, shapes", "mean wait h", _EASY, 1.2),
    (64, 1.1, "gpusched, shapes", "mean wait h", _EASY, 1.2),
    *(
        (devices, load, f"gpusched, {people}", "large wait h", "FIFO", 1.0)
        for devices in (8, 64)
        for load in (0.9, 1.1)
        for people in ("commands repeated, spread 0.5", "commands repeated, spread 1", "shapes")
    ),
)
"""Devices, load, queue, figure, which queue it is compared with, and how many times as much it may be."""

Row = tuple[dict[str, str | int | float], dict[str, float]]
"""What a figure is of, and the figures of one seed."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The means of one row over its `seeds`, each with half of its 95 % interval; `of` says what it is of."""

    of: dict[str, str | int | float]
    seeds: int
    date: str
    figures: dict[str, tuple[float, float]]

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure, None if it was not measured."""
        return self.figures[figure][0] if figure in self.figures else None


Found = Mapping[str, Sequence[Measured]]
"""By what was measured: saturation, queue and so on."""


def of_seeds(rows: Iterable[Row]) -> list[Measured]:
    """Return the means over all seeds, in the order in which rows first came."""
    found: dict[tuple[tuple[str, str | int | float], ...], dict[str, list[float]]] = {}
    for labels, values in rows:
        for name, value in values.items():
            found.setdefault(tuple(labels.items()), {}).setdefault(name, []).append(value)
    return [
        Measured(
            of=dict(key),
            seeds=max(map(len, columns.values())),
            date=time.strftime("%Y-%m-%d"),
            figures={name: (statistics.fmean(each), half_width(each)) for name, each in columns.items()},
        )
        for key, columns in found.items()
    ]


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95 % confidence interval of the mean, by the normal distribution; 0 for one value."""
    return 1.96 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def load(path: Path = SOURCE) -> Found:
    """Return what was measured so far, nothing without a file. Raises msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Measured]]) if path.exists() else {}


def store(what: str, rows: Sequence[Measured], path: Path = SOURCE, *, first_seed: int = 0) -> None:
    """Replace those rows of docs/queue.json that were measured again; from `first_seed` on: add to them.

    Raises ValueError where the seeds before it are not there, and OSError.
    """
    found = dict(load(path))
    before = {tuple(row.of.items()): row for row in found.get(what, ())}
    if first_seed:
        rows = [_together(before.get(tuple(row.of.items())), row, first_seed) for row in rows]
    again = [row.of for row in rows]
    found[what] = [*(row for row in found.get(what, ()) if row.of not in again), *rows]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def _together(before: Measured | None, more: Measured, first_seed: int) -> Measured:
    """Return the means over the seeds of both, with the intervals of all their values."""
    if before is None or before.seeds != first_seed:
        raise ValueError(f"{more.of}: {before.seeds if before else 0} seeds are there, and not {first_seed}")
    names = [name for name in before.figures if name in more.figures]
    figures = {name: _pooled(before.seeds, *before.figures[name], more.seeds, *more.figures[name]) for name in names}
    return Measured(of=more.of, seeds=before.seeds + more.seeds, date=more.date, figures=figures)


def _pooled(n: int, mean: float, half: float, m: int, other: float, other_half: float) -> tuple[float, float]:
    """Return the mean of n and m values together, and half of its interval, of the same of both."""
    count = n + m
    squares = sum((size - 1) * size * (width / 1.96) ** 2 for size, width in ((n, half), (m, other_half)))
    squares += n * m / count * (mean - other) ** 2
    return (n * mean + m * other) / count, 1.96 * (squares / (count - 1) / count) ** 0.5


def part(found: Found) -> str:
    """Return the part of the page, in Markdown; nothing where nothing was measured."""
    if not found.get("queue"):
        return ""
    parts = [_ABOUT, _goals(found), *(_waits(found, devices) for devices in _devices(found)), _SPREAD]
    more = {"frontier": _frontier, "predictions": _predictions, "saturation": _saturation, "pass": _passes}
    more |= {"history": _history}
    return "\n".join([*parts, *(told(found[what]) for what, told in more.items() if found.get(what))])


_ABOUT: Final = """\
## The queue

The real scheduler in simulated time (`python -m bench.queue_trace`): jobs come by chance, with sizes and run times of
the public openb trace of Alibaba, and keep the GPUs busy to 90 % or ask for 110 % of them. 2,000 jobs on 8 GPUs, 6,000
on 64. No job runs for more than a day: 81 of the 7,064 tasks did, for up to five months, and are cut to a day; the 861
that have no run time get the median of the others. Means of all seeds, ± half of the 95 % interval. The seeds differ
much, and alike for all rows: compare means.

![Mean waits, and what the bound on a head's delay costs](images/queue.png)
"""

_SPREAD: Final = """\
*Commands repeated, spread 0.5*: five earlier runs of each command are known, and its run times are a lognormal
distribution whose logarithm deviates by 0.5. *Shapes*: nothing repeats but what a task asks for (126 shapes). Large
jobs want 2 to 8 whole GPUs. A head is *late* if it starts over a minute after the earliest moment for which it was ever
expected; `latest` is the mean of the worst of each seed.
"""


def _devices(found: Found) -> list[float]:
    return sorted({float(row.of["devices"]) for row in found["queue"]})


def _row(rows: Iterable[Measured], **of: str | float) -> Measured | None:
    return next((row for row in rows if row.of == of), None)


def _goals(found: Found) -> str:
    lines = ["| what it must show | measured |", "|---|---|"]
    for devices, load_, queue, figure, than, most in _AT_MOST:
        ours = _row(found["queue"], devices=devices, load=load_, queue=queue)
        theirs = _row(found["queue"], devices=devices, load=load_, queue=than)
        what = f"{figure.removesuffix(' h')} of {queue.removeprefix('gpusched, ')}, by that of {than}"
        lines.append(f"| {devices} GPUs, {load_:.0%}: {what} | {_verdict(ours, theirs, figure, most)} |")
    return "\n".join([*lines, ""])


def _verdict(ours: Measured | None, theirs: Measured | None, figure: str, most: float) -> str:
    mine, other = (row.mean(figure) if row else None for row in (ours, theirs))
    if mine is None or not other:
        return "not measured"
    return f"{'met' if mine <= most * other else 'not met'}: {mine / other:.2f}, at most {most:g} wanted"


def _cell(row: Measured | None, figure: str, digits: str = ".3g") -> str:
    if row is None or figure not in row.figures:
        return ""
    mean, half = row.figures[figure]
    return f"{mean:{digits}} ± {half:.2g}" if half else f"{mean:{digits}}"


def _waits(found: Found, devices: float) -> str:
    figures = ("mean wait h", "p95 wait h", "large wait h", "use %", "heads late %", "latest h")
    rows = [row for row in found["queue"] if row.of["devices"] == devices]
    parts = []
    for load_ in (0.9, 1.1):
        easy = _row(rows, devices=devices, load=load_, queue=_EASY)
        loaded = [row for row in rows if row.of["load"] == load_]
        if not loaded:
            continue
        lines = [[_name(row), *(_cell(row, one) for one in figures), _by(row, easy)] for row in loaded]
        told = f"{devices:g} GPUs, {load_:.0%} load ({_seeds(loaded)}):"
        parts.append(_table(told, ["", *figures, "mean wait by EASY's"], lines))
    return "\n".join(parts)


def _table(told: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|".join("---" if number == 0 else "--:" for number in range(len(headings)))
    return "\n".join([told, "", _line(headings), f"|{rule}|", *map(_line, lines), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(row: Measured) -> str:
    name = str(row.of["queue"])
    return f"**{name}**" if name.startswith(_OURS) else name


def _by(row: Measured, easy: Measured | None) -> str:
    mine, theirs = row.mean("mean wait h"), easy.mean("mean wait h") if easy else None
    return f"{mine / theirs:.2f}" if mine is not None and theirs else ""


def _seeds(rows: Sequence[Measured]) -> str:
    seeds, dates = sorted({row.seeds for row in rows}), sorted({row.date for row in rows})
    return f"{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}, {' and '.join(dates)}"


def _frontier(rows: Sequence[Measured]) -> str:
    figures = ("mean wait h", "p95 wait h", "large wait h", "late p99 h", "latest h")
    told = f"What the bound on a head's delay (`most_delay`) costs, on 8 GPUs ({_seeds(rows)}):"
    lines = [[f"{row.of['queue']}, {float(row.of['load']):.0%}", *(_cell(row, one) for one in figures)] for row in rows]
    return _table(told, ["", *figures], lines)


def _predictions(rows: Sequence[Measured]) -> str:
    told = "How near predictions are to the real run times, in %: the smaller by the larger, mean of all jobs"
    lines = [[str(row.of["commands"]), *(_cell(row, one) for one in row.figures)] for row in rows]
    return _table(f"{told} ({_seeds(rows)}):", ["", *rows[0].figures], lines)


def _saturation(rows: Sequence[Measured]) -> str:
    told = (
        "How full a host gets: tasks come and never go, until they ask for 130 % of it, and one that has no place is "
        f"left out. The part of the GPUs that is taken, in % ({_seeds(rows)}). A `launch` here has one process:"
    )
    lines = [
        [f"**{rule}**" if rule.startswith(_OURS) else rule, *(_cell(row, rule, ".4g") for row in rows)]
        for rule in rows[0].figures
    ]
    return _table(told, ["", *(f"{row.of['devices']} GPUs, {row.of['tasks']}" for row in rows)], lines)


def _passes(rows: Sequence[Measured]) -> str:
    told = "One pass over the queue, CPU time in ms; wanted were at most 10 with 500 waiting and 50 with 10,000"
    lines = [
        [
            f"{row.of['devices']} devices, all full, {row.of['waiting']:,} waiting, limits: {row.of['limits']}",
            *(_cell(row, one) for one in ("full host", "after an end")),
        ]
        for row in rows
    ]
    return _table(f"{told} ({_seeds(rows)}):", ["", "nothing changed", "after an end"], lines)


def _history(rows: Sequence[Measured]) -> str:
    told = "CPU time of predictions, ms, by how many jobs have ended: at the daemon's start, and for each submission"
    lines = [[f"{row.of['ended']:,}", *(_cell(row, one, ".2g") for one in ("at the start", "each"))] for row in rows]
    return _table(f"{told} ({_seeds(rows)}):", ["", "at the start", "each"], lines)
