"""What placement and queue must show, and whether they do."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bench.queue_trace.results import Found, Measured, ratio

__all__ = ["EASY", "goals", "row_of", "shown"]

EASY: Final = "EASY, limits 1 to 5 times too long"
_AT_MOST: Final = (
    (8, 0.9, "gpusched, commands repeated, spread 0.5", "mean wait h", EASY, 0.7),
    (8, 0.9, "gpusched, commands repeated, spread 1", "mean wait h", EASY, 0.7),
    (8, 1.1, "gpusched, commands repeated, spread 0.5", "mean wait h", EASY, 0.7),
    (8, 1.1, "gpusched, commands repeated, spread 1", "mean wait h", EASY, 0.7),
    (8, 0.9, "gpusched, commands repeated, spread 0.5", "p95 wait h", EASY, 1.0),
    (8, 0.9, "gpusched, commands repeated, spread 1", "p95 wait h", EASY, 1.0),
    (8, 1.1, "gpusched, commands repeated, spread 0.5", "p95 wait h", EASY, 1.0),
    (8, 1.1, "gpusched, commands repeated, spread 1", "p95 wait h", EASY, 1.0),
    (8, 0.9, "gpusched, shapes", "mean wait h", EASY, 1.5),
    (8, 1.1, "gpusched, shapes", "mean wait h", EASY, 1.6),
    (64, 0.9, "gpusched, commands repeated, spread 0.5", "mean wait h", EASY, 1.1),
    (64, 0.9, "gpusched, commands repeated, spread 1", "mean wait h", EASY, 1.1),
    (64, 1.1, "gpusched, commands repeated, spread 0.5", "mean wait h", EASY, 1.1),
    (64, 1.1, "gpusched, commands repeated, spread 1", "mean wait h", EASY, 1.1),
    (64, 0.9, "gpusched, shapes", "mean wait h", EASY, 1.2),
    (64, 1.1, "gpusched, shapes", "mean wait h", EASY, 1.2),
    *(
        (devices, load, f"gpusched, {people}", "large wait h", "FIFO", 1.0)
        for devices in (8, 64)
        for load in (0.9, 1.1)
        for people in ("commands repeated, spread 0.5", "commands repeated, spread 1", "shapes")
    ),
)
"""Devices, load, queue, figure, which queue it is compared with, and how many times as much it may be."""

_CLOSE: Final = 0.5
_LONGEST_MS: Final = {500: 10.0, 10_000: 50.0}
_HISTORY_MS: Final = 2.0


def row_of(rows: Iterable[Measured], **of: str | float) -> Measured | None:
    """Return the first row that is of these."""
    return next((row for row in rows if all(row.of.get(name) == value for name, value in of.items())), None)


def goals(found: Found) -> Iterator[tuple[str, str]]:
    """Yield what must be shown, and what was measured of it."""
    for devices, load, queue, figure, than, most in _AT_MOST:
        ours = row_of(found["queue"], devices=devices, load=load, queue=queue)
        theirs = row_of(found["queue"], devices=devices, load=load, queue=than)
        what = f"{figure.removesuffix(' h')} of {queue.removeprefix('gpusched, ')}, by that of {than}"
        yield f"{devices} GPUs, {load:.0%}: {what}", _verdict(ours, theirs, figure, most)
    yield "no head waits beyond the bound on its delay", _bound(found)
    for row in found.get("saturation", ()):
        yield f"{row.of['devices']} GPUs, {row.of['tasks']}: how full launches of the queue get", _as_full(row)
    for crowd in dict.fromkeys(row.of["needs"] for row in found.get("pass", ())):
        for waiting, most in _LONGEST_MS.items():
            rows = [row for row in found["pass"] if (row.of["waiting"], row.of["needs"]) == (waiting, crowd)]
            yield (
                f"a pass over {waiting:,} waiting jobs, all devices full: {crowd}",
                _at_most(rows, ("full host", "after an end"), most),
            )
    yield "a prediction after 100,000 jobs", _at_most(found.get("history", ()), ("each",), _HISTORY_MS)
    for row in found.get("predictions", ()):
        yield f"predictions, {row.of['commands']}: nearer than the last two of the same", _nearer(row)


def _verdict(ours: Measured | None, theirs: Measured | None, figure: str, most: float) -> str:
    found = ratio(ours, theirs, figure) if ours and theirs else None
    if found is None:
        return "not measured"
    by, half = found
    doubt = ", of one seed" if half is None else ", within the spread" if abs(by - most) < half else ""
    return f"{_met(by <= most)}{doubt}: {shown(by, half)}, at most {most:g} wanted"


def shown(by: float, half: float | None) -> str:
    """Return a quotient with half of its interval, if that is known."""
    return f"{by:.2f}" if half is None else f"{by:.2f} ± {half:.2f}"


def _met(met: bool) -> str:  # noqa: FBT001 (it is what is asked)
    return "met" if met else "not met"


def _bound(found: Found) -> str:
    rows = [row for what in ("queue", "frontier", "between", "stream") for row in found.get(what, ())]
    heads = sum(row.mean("heads past the bound") or 0 for row in rows)
    if not heads:
        return "not measured: no head came so late"
    beyond = sum(row.mean("beyond the bound") or 0 for row in rows)
    return f"{_met(not beyond)}: {beyond:g} of {heads:,.0f} heads that were late by more than the bound"


def _as_full(row: Measured) -> str:
    ours, best = row.mean("gpusched launch -d"), row.mean("best fit")
    if ours is None or best is None:
        return "not measured"
    return f"{_met(ours >= best - _CLOSE)}: {ours:.2f} %, best fit {best:.2f}; {_CLOSE} less at the most wanted"


def _at_most(rows: Sequence[Measured], figures: Sequence[str], most: float) -> str:
    values = [value for row in rows for figure in figures if (value := row.mean(figure)) is not None]
    if not values:
        return "not measured"
    return f"{_met(max(values) <= most)}: {max(values):.3g} ms in the slowest case, at most {most:g} wanted"


def _nearer(row: Measured) -> str:
    ours, theirs = row.mean("ours"), row.mean("last two")
    if ours is None or theirs is None:
        return "not measured"
    return f"{_met(ours >= theirs)}: {ours:.1f} % to {theirs:.1f} %"
