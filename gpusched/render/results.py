"""The results of an array: a table of its members, and the score over each parameter; as text, CSV and HTML."""

import csv
import io
from collections.abc import Iterator, Sequence
from html import escape
from statistics import fmean
from typing import Final, NamedTuple

from gpusched.model.array import MemberResult
from gpusched.render.ansi import Text
from gpusched.render.job_format import span
from gpusched.render.table import lines_of, room_of_last
from gpusched.render.text import cut, printable

__all__ = ["draw_results", "results_csv", "results_html"]

_BAR: Final = 24
_MOST_VALUES: Final = 20
_LONGEST_VALUE: Final = 24
_LARGEST: Final = 1e300  # so that the difference of two is a number
_COLOUR: Final = "#5fafff"


class _Level(NamedTuple):
    """All members with one value of a parameter, or with values in one range: their scores."""

    name: str
    mean: float
    best: float
    number: int


def draw_results(members: Sequence[MemberResult], names: Sequence[str], width: int | None) -> Iterator[Text]:
    """Yield the lines of the table and of the bars."""
    columns = {
        "MEMBER": [Text(f"[{one.number}]", "bold") for one in members],
        **{name: [_cell(one.parameters.get(name, "")) for one in members] for name in names},
        "STATE": [Text(one.state) for one in members],
        ">TIME": [Text("-" if one.seconds is None else span(one.seconds)) for one in members],
        ">SCORE": [Text(_number(one.score)) for one in members],
        "MESSAGE": [Text(printable(one.message or "")) for one in members],
    }
    if not any(one.message for one in members):
        del columns["MESSAGE"]
    titles, rows = list(columns), [list(row) for row in zip(*columns.values(), strict=True)]
    if width is not None and "MESSAGE" in columns:
        room = max(0, room_of_last(titles, rows, width))
        rows = [[*row[:-1], Text(cut(row[-1].plain, room))] for row in rows]
    yield from lines_of(titles, rows, width)
    for name in names:
        levels = _levels(members, name)
        if len(levels) > 1:
            yield Text("")
            yield from _bars(name, levels)


def results_csv(members: Sequence[MemberResult], names: Sequence[str]) -> str:
    """Return the results as CSV: number, parameters, state, seconds, then all numbers of the last report."""
    numbers = list(dict.fromkeys(name for one in members for name in one.report))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["member", *names, "state", "seconds", *numbers, "message"])
    for one in members:
        seconds = "" if one.seconds is None else f"{one.seconds:.3f}"
        values = [one.parameters.get(name, "") for name in names]
        reported = [one.report.get(name, "") for name in numbers]
        writer.writerow([one.number, *values, one.state, seconds, *reported, one.message or ""])
    return file.getvalue()


def results_html(members: Sequence[MemberResult], names: Sequence[str]) -> str:
    """Return the table for a notebook, and for each parameter a bar of the mean score for each of its values."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in ("member", *names, "state", "score"))
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(cell)}</td>"
            for cell in (str(one.number), *(one.parameters.get(n, "") for n in names), one.state, _number(one.score))
        )
        + "</tr>"
        for one in members
    )
    bars = "".join(_bars_html(name, levels) for name in names if len(levels := _levels(members, name)) > 1)
    return f"<table><tr>{head}</tr>{rows}</table>{bars}"


def _levels(members: Sequence[MemberResult], name: str) -> list[_Level]:
    """Return the scores by the values of a parameter; many numbers are put together in ranges."""
    scored = [
        (one.parameters.get(name, ""), max(-_LARGEST, min(_LARGEST, one.score)))
        for one in members
        if one.score is not None
    ]
    by_value: dict[str, list[float]] = {}
    for value, score in scored:
        by_value.setdefault(value, []).append(score)
    values = sorted(by_value, key=_order)
    size = -(-len(values) // _MOST_VALUES)
    parts = [values[begin : begin + size] for begin in range(0, len(values), size or 1)]
    found = []
    for part in parts:
        scores = [score for value in part for score in by_value[value]]
        label = part[0] if len(part) == 1 else f"{part[0]} .. {part[-1]}"
        found.append(_Level(label, fmean(scores), max(scores), len(scores)))
    return found


def _order(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value


def _bars(name: str, levels: Sequence[_Level]) -> Iterator[Text]:
    low, high = _bounds(levels)
    rows = [
        [
            _cell(level.name),
            Text("█" * max(1, round(_BAR * (level.mean - low) / (high - low))), "cyan"),
            *_numbers(level),
        ]
        for level in levels
    ]
    same = len({level.mean for level in levels}) == 1
    title = "MEAN SCORE, ALL THE SAME" if same else f"MEAN SCORE, FROM {_number(low)}"
    yield from lines_of([printable(name), title, ">MEAN", ">BEST", ">OF"], rows, None)


def _numbers(level: _Level) -> list[Text]:
    return [Text(_number(level.mean)), Text(_number(level.best)), Text(str(level.number))]


def _bounds(levels: Sequence[_Level]) -> tuple[float, float]:
    """Return where the bars begin and end: at 0, unless the scores differ by little beside it or are below it."""
    low, high = min(level.mean for level in levels), max(level.mean for level in levels)
    begin = 0.0 if 0 <= low < high / 2 else low - (high - low) / _BAR
    return (begin, high) if high > begin else (begin - 1.0, high)


def _bars_html(name: str, levels: Sequence[_Level]) -> str:
    low, high = _bounds(levels)
    rows = "".join(
        f'<tr><td>{escape(level.name)}</td><td style="width:20em"><div style="background:{_COLOUR};height:1em;'
        f'width:{100 * (level.mean - low) / (high - low):.1f}%"></div></td>'
        f"<td>{_number(level.mean)}</td><td>{_number(level.best)}</td></tr>"
        for level in levels
    )
    head = f"<tr><th>{escape(name)}</th><th>mean score, from {_number(low)}</th><th>mean</th><th>best</th></tr>"
    return f"<table>{head}{rows}</table>"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _cell(value: str) -> Text:
    return Text(cut(printable(value), _LONGEST_VALUE))
