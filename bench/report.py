"""The figures as a page (docs/benchmarks.md) and as tables in a terminal; docs/benchmarks.json is their source."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.busy import BUSY
from bench.fresh import ROOT
from bench.picture import draw
from bench.queue_trace.page import part
from bench.queue_trace.picture import draw as draw_queue
from bench.queue_trace.results import load as load_queue
from bench.results import (
    Place,
    Results,
    RowResult,
    SectionResult,
    load,
    merged,
    save,
    short,
    times_better,
    verdict,
)

__all__ = ["page", "print_results", "write_page", "write_results"]

_DOCS: Final = ROOT / "docs"
_SOURCE: Final = _DOCS / "benchmarks.json"
_NARROWEST: Final = 120
_ARROWS: Final = {"more": "↑", "less": "↓"}
_ABOUT: Final = """\
# Benchmarks

<!-- Made by `make bench` from benchmarks.json: what is changed here by hand goes with the next run. -->

`make bench` measures all of this beside its peers and writes this page; `make bench-quick` gives a first look. In each
round every row is measured once, ours beside theirs, so that whatever else the machine does disturbs all alike; a cell
is the median of the rounds (five and more; three where no goal names the row, fewer for some that take a minute), with
the least and the most. **Trust the ratios, not the times**: `2 ×` is twice as good as
the row that the table names, `0.5 ×` half as good. *Original* is the design that gpusched replaces, *strong* what a
careful person would write instead, *limit* what the machine can do at most.
"""


def page(results: Results, queue: str = "") -> str:
    """Return the page for all results, in Markdown; `queue` is the part on the queue."""
    parts = [_ABOUT, "![How far each goal is reached](images/benchmarks.png)\n", _goals(results)]
    parts += [_section(section) for section in results.sections]
    return "\n".join([*parts, *([queue] if queue else []), _places(results)])


def print_results(sections: Sequence[SectionResult], *, quick: bool = False) -> None:
    """Print tables and goals; those of a quick look are no verdict."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _NARROWEST
    for section in sections:
        console.print(_table(section))
        for line in (*_compared(section), *_notes(section)):
            console.print(escape(line), style="dim")
        for goal in section.goals:
            console.print(f"  {escape(goal.text)}: {escape(verdict(goal, section).words)}")
        console.print()
    if quick:
        console.print("A quick look: fewer processes, rounds and seconds than the goals speak of.")


def _table(section: SectionResult) -> Table:
    """Return the table for a terminal: `±` is the value that is farthest from the median, `×` a column of its own."""
    title = f"{section.title} ({section.seconds:.0f} s)"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("kind")
    for key, figure in section.figures.items():
        table.add_column(
            escape(f"{figure.name}\n{figure.unit} {_ARROWS[figure.better]}"), justify="right", no_wrap=True
        )
        if _reference(section, key):
            table.add_column("\n×", justify="right", no_wrap=True)
    for row in section.rows:
        cells = [row.name, row.kind]
        for key in section.figures:
            cells.append(_short_cell(row, key))
            if _reference(section, key):
                cells.append(_ratio(section, row, key))
        table.add_row(*(escape(cell) for cell in cells), style="bold" if row.kind == "ours" else None)
    return table


def _short_cell(row: RowResult, key: str) -> str:
    median = row.median(key)
    if median is None:
        return ""
    farthest = max(abs(value - median) for value in row.values[key])
    spread = f" ±{farthest / median:.0%}" if median and len(row.values[key]) > 1 else ""
    return f"{short(median)}{spread}"


def write_results(sections: Iterable[SectionResult], order: Iterable[str]) -> None:
    """Replace these sections in docs/benchmarks.json, and make the page and its picture anew. Raises OSError."""
    save(_SOURCE, merged(load(_SOURCE), sections, order))
    write_page()


def write_page() -> None:
    """Make docs/benchmarks.md and its pictures of docs/benchmarks.json and docs/queue.json. Raises OSError."""
    results, of_queue = load(_SOURCE), load_queue()
    (_DOCS / "benchmarks.md").write_text(page(results, part(of_queue)), encoding="utf-8")
    draw(results, _DOCS / "images" / "benchmarks.png")
    draw_queue(of_queue, _DOCS / "images" / "queue.png")


def _goals(results: Results) -> str:
    lines = ["## What it must show", "", "| what | measured |", "|---|---|"]
    for section in results.sections:
        busy = ", on a busy host" if (section.busy_part or 0.0) >= BUSY else ""
        lines += [f"| {_plain(goal.text)} | {_plain(verdict(goal, section).words)}{busy} |" for goal in section.goals]
    return "\n".join([*lines, ""])


def _section(section: SectionResult) -> str:
    headings = ["", "kind", *_headings(section)]
    lines = [f"## {section.title}", "", section.about, ""]
    lines += [f"| {' | '.join(headings)} |", f"|---|---|{'--:|' * len(section.figures)}"]
    for row in section.rows:
        name = f"**{_plain(row.name)}**" if row.kind == "ours" else _plain(row.name)
        lines.append(f"| {' | '.join([name, row.kind, *_cells(section, row)])} |")
    told = [*_compared(section), *_notes(section)]
    return "\n".join([*lines, "", *(f"{_plain(line)}  " for line in told), ""])


def _headings(section: SectionResult) -> list[str]:
    units = {key: f", {figure.unit}" if figure.unit else "" for key, figure in section.figures.items()}
    return [f"{figure.name}{units[key]} {_ARROWS[figure.better]}" for key, figure in section.figures.items()]


def _cells(section: SectionResult, row: RowResult) -> list[str]:
    return [_cell(section, row, key) for key in section.figures]


def _cell(section: SectionResult, row: RowResult, key: str) -> str:
    """Return `7.1 (6.9-7.4), 7.3 ×`: median, least, most, and times better than the row that it is compared with."""
    median = row.median(key)
    if median is None:
        return ""
    values = row.values[key]
    spread = f" ({short(min(values))}-{short(max(values))})" if len(values) > 1 else ""
    ratio = _ratio(section, row, key)
    return f"{short(median)}{spread}, {ratio} ×" if ratio else f"{short(median)}{spread}"


def _ratio(section: SectionResult, row: RowResult, key: str) -> str:
    """Return how many times better a row is than the one that it is compared with; nothing for that row itself."""
    than, median = _reference(section, key), row.median(key)
    theirs = than.median(key) if than and than is not row else None
    return short(times_better(section.figures[key], median, theirs)) if theirs and median else ""


def _reference(section: SectionResult, key: str) -> RowResult | None:
    """Return the row that a figure is compared with: that of the first goal for it, else the original's."""
    named = next((goal.than for goal in section.goals if goal.figure == key and goal.than), None)
    if named is not None:
        return section.row(named)
    return next((row for row in section.rows if row.kind == "original" and key in row.values), None)


def _compared(section: SectionResult) -> list[str]:
    """Return the line that says what `×` compares with, figure by figure where that differs."""
    found = {key: row.name for key in section.figures if (row := _reference(section, key))}
    if len(set(found.values())) == 1:
        return [f"×: times better than {next(iter(found.values()))}."]
    told = ", ".join(f"in {section.figures[key].name} than {name}" for key, name in found.items())
    return [f"×: times better {told}."] if told else []


def _notes(section: SectionResult) -> list[str]:
    part, rows = section.busy_part or 0.0, [row for row in section.rows if row.note]
    busy = [f"Measured on a busy host: others took {part:.0%} of its CPU time when it began."] if part >= BUSY else []
    return [*busy, *(f"{row.name}: {' '.join((row.note or '').split())}" for row in rows)]


def _places(results: Results) -> str:
    """Return where and when, once for all sections that were measured at the same place."""
    lines = ["## Where and when", ""]
    places: list[Place] = []
    for section in results.sections:
        if section.place not in places:
            places.append(section.place)
    for place in places:
        here = [section for section in results.sections if section.place == place]
        took = sum(section.seconds for section in here) / 60
        which = "all" if len(places) == 1 else ", ".join(section.name for section in here)
        versions = ", ".join(f"{name} {number}" for name, number in place.versions.items())
        machine = f"{place.cpu}, {place.cores} cores, {place.memory_gib} GiB, Linux {place.kernel}"
        lines.append(
            f"- {which}: {', '.join(sorted({s.date for s in here}))}, {took:.0f} minutes. {machine}. {versions}."
        )
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    """Return text for a cell of a table, where a bar would end the cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")
