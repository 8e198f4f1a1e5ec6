"""Draws what jobs used beside what they were given: a line for each role of a job, or for all runs of a command."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.model.array import array_of
from gpusched.model.usage import RoleUsage
from gpusched.render.ansi import Text
from gpusched.render.job_format import memory_text, span
from gpusched.render.table import fitting, lines_of
from gpusched.render.text import printable

__all__ = ["draw_usage", "usage_html", "usage_table"]

_LITTLE: Final = 0.5
"""Who uses less of its share is marked."""

_HOUR_S: Final = 3600
_GIB: Final = 1024
_KILO: Final = 1000
_TEN: Final = 10
_LEAST_OF_LAST: Final = 16
_PLAIN: Final = {
    **{
        title: {"-", ""}
        for title in ("GPU", ">GIVEN", ">USED", ">OF IT", ">NEEDED", ">BUSY", ">ENERGY", ">HOST", "STATE")
    },
    "ROLE": {"command"},
    ">PROCS": {"1"},
}
"""A column with nothing but these is left out."""

_MAY_GO: Final = ("STATE", ">ENERGY", ">CPUS", ">HOST", "GPU", "ROLE")


def usage_html(rows: Sequence[RoleUsage], *, named: bool) -> str:
    """Return the same for a notebook."""
    from html import escape  # most tables are text

    titles, cells, total = usage_table(rows, named=named)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in cells)
    return f"<table><tr>{head}</tr>{body}</table><p>{escape(total)}</p>"


def usage_table(rows: Sequence[RoleUsage], *, named: bool) -> tuple[list[str], list[list[str]], str]:
    """Return the same as titles, the texts of each line, and a sentence on what it adds up to, empty for none."""
    titles, cells = _cells(_lines(rows, named=named), named=named)
    return (
        [title.removeprefix(">").lower() for title in titles],
        [[cell.plain for cell in line] for line in cells],
        _total(rows),
    )


def draw_usage(rows: Sequence[RoleUsage], width: int | None, *, named: bool) -> Iterator[Text]:
    """Yield the lines of the table, and what it adds up to."""
    if not rows:
        yield Text("no job has run in this time")
        return
    titles, cells = _cells(_lines(rows, named=named), named=named)
    titles, cells = fitting(titles, cells, width, _MAY_GO, _LEAST_OF_LAST)
    yield from lines_of(titles, cells, width)
    if total := _total(rows):
        yield Text("")
        yield Text(total)


def _lines(rows: Sequence[RoleUsage], *, named: bool) -> list[list[RoleUsage]]:
    """Return the rows of each line, the latest first, and first the line whose shares were used least."""
    if named:
        return [[row] for row in rows]
    groups: dict[tuple[str, str, str | None], list[RoleUsage]] = {}
    for row in rows:
        groups.setdefault((array_of(row.job) or row.what, row.role, row.device), []).append(row)
    return sorted(groups.values(), key=lambda line: -sum(map(_wasted, line)))


def _cells(lines: Sequence[Sequence[RoleUsage]], *, named: bool) -> tuple[Sequence[str], Sequence[Sequence[Text]]]:
    """Return titles and cells, without the columns in which no line has anything."""
    fullest = [_fullest(line) for line in lines]
    columns = {
        "JOB": [Text(_name(line), "bold") for line in lines],
        ">RUNS": [Text(str(len(line))) for line in lines],
        "ROLE": [Text(line[0].role) for line in lines],
        ">PROCS": [Text(str(line[0].replicas)) for line in lines],
        "GPU": [Text(printable(line[0].device or "-")) for line in lines],
        ">GIVEN": [Text(memory_text(row.share_mib or None)) for row in fullest],
        ">USED": [Text(memory_text(row.device_mib)) for row in fullest],
        ">OF IT": [_part(row) for row in fullest],
        ">NEEDED": [Text(memory_text(_most([row.peak_mib for row in line]))) for line in lines],
        ">BUSY": [Text(_busy(line)) for line in lines],
        ">ENERGY": [Text(_energy(line)) for line in lines],
        ">HOST": [Text(memory_text(_most([row.host_mib for row in line]))) for line in lines],
        ">CPUS": [Text(_cpus(line)) for line in lines],
        ">TIME": [Text(span(sum(row.seconds for row in line))) for line in lines],
        "STATE": [Text(line[0].state if len(line) == 1 else "") for line in lines],
        "COMMAND": [Text(printable(line[0].what)) for line in lines],
    }
    if named:
        del columns[">RUNS"]
    for title, plain in _PLAIN.items():
        if title in columns and {cell.plain for cell in columns[title]} <= plain:
            del columns[title]
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def _name(line: Sequence[RoleUsage]) -> str:
    first = line[0]
    if len(line) == 1:
        return first.job
    return array_of(first.job) or f"{first.job} ..."


def _most(figures: Sequence[int | None]) -> int | None:
    return max((one for one in figures if one is not None), default=None)


def _fullest(line: Sequence[RoleUsage]) -> RoleUsage:
    """Return the run that used most of what it was given."""
    return max(line, key=lambda row: -1.0 if row.used_part is None else row.used_part)


def _part(row: RoleUsage) -> Text:
    part = row.used_part
    return Text("-") if part is None else Text(f"{100 * part:.0f} %", "yellow" if part < _LITTLE else "")


def _cpus(line: Sequence[RoleUsage]) -> str:
    """Return how many CPUs one process kept busy, on average."""
    cpu_s = [row.cpu_s for row in line if row.cpu_s is not None]
    seconds = sum(row.run_s for row in line if row.cpu_s is not None)
    return f"{sum(cpu_s) / seconds:.2f}" if cpu_s and seconds else "-"


def _busy(line: Sequence[RoleUsage]) -> str:
    """Return for which part of the time kernels ran."""
    known = [(row.sm_percent, row.seconds) for row in line if row.sm_percent is not None]
    seconds = sum(each for _, each in known)
    return f"{sum(percent * each for percent, each in known) / seconds:.0f} %" if seconds else "-"


def _energy(line: Sequence[RoleUsage]) -> str:
    """Return the energy of all runs; `~`: a part of it is attributed, as others were on the same devices."""
    known = [row.energy_j for row in line if row.energy_j is not None]
    if not known:
        return "-"
    hours = sum(known) / _HOUR_S
    amount = f"{hours / _KILO:.1f} kWh" if hours >= _KILO else f"{hours:.0f} Wh" if hours >= _TEN else f"{hours:.1f} Wh"
    return "~" * any(row.energy_attributed for row in line) + amount


def _wasted(row: RoleUsage) -> float:
    """Return GiB hours of shares that were not used; 0 where that is not known."""
    return 0.0 if row.used_mib_s is None else (row.given_mib_s - row.used_mib_s) / _GIB / _HOUR_S


def _total(rows: Sequence[RoleUsage]) -> str:
    """Return what all of it adds up to, empty where no use of a device is known."""
    given = sum(row.given_mib_s for row in rows if row.used_mib_s is not None) / _GIB / _HOUR_S
    if not given:
        return ""
    used = given - sum(map(_wasted, rows))
    unit, scale = ("hours", 1) if given >= 1 else ("minutes", 60)
    given, used = given * scale, used * scale
    part = f"{100 * used / given:.0f} %"
    return f"given {given:.1f} GiB {unit} of GPU memory, used at their peaks {used:.1f} of them ({part})"
