"""Styled texts in columns: which columns have room, how wide each is, long texts in several lines; parts of a bar."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from gpusched.render.ansi import Text
from gpusched.render.text import cell_width

__all__ = ["cell_widths", "fitting", "flowed", "lines_of", "room_of_last", "wrapped"]

_GAP = 2

Row = Sequence[Text]


def fitting(
    titles: Sequence[str], rows: Sequence[Row], width: int | None, may_go: Sequence[str], least: int
) -> tuple[Sequence[str], Sequence[Row]]:
    """Return the columns that leave the last one `least` columns of a terminal; of `may_go` the first go first."""
    for title in may_go:
        if width is None or room_of_last(titles, rows, width) >= least:
            break
        if title in titles:
            at = titles.index(title)
            titles = [*titles[:at], *titles[at + 1 :]]
            rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    return titles, rows


def room_of_last(titles: Sequence[str], rows: Sequence[Row], width: int) -> int:
    """Return how many columns of a terminal are left to the last column; below 0 where the others have no room."""
    return width - sum(_widths(titles, rows)[:-1]) - _GAP * (len(titles) - 1)


def lines_of(titles: Sequence[str], rows: Sequence[Row], width: int | None) -> Iterator[Text]:
    """Set cells in columns as wide as their contents; > aligns to the right, else the last one gets what is left."""
    widths = _widths(titles, rows)
    if width is not None and not titles[-1].startswith(">"):
        widths[-1] = max(room_of_last(titles, rows, width), 0)
    head = [Text(title.removeprefix(">"), style="dim") for title in titles]
    for row in (head, *rows):
        line = Text()
        for title, cell, wide in zip(titles, row, widths, strict=True):
            shown = cell.copy()
            shown.truncate(wide)
            gap = " " * (wide - shown.cell_len)
            line.append_text(Text.assemble(gap, shown) if title.startswith(">") else Text.assemble(shown, gap))
            line.append(" " * _GAP)
        line.rstrip()
        yield line


def wrapped(text: str, width: int | None, *, style: str = "", indent: str = "") -> Iterator[Text]:
    """Yield a text in lines of at most `width` columns, or in one line with None."""
    lines = [text] if width is None else textwrap.wrap(text, max(width - len(indent), 20), break_on_hyphens=False)
    for line in lines:
        yield Text(f"{indent}{line}", style=style)


def flowed(items: Iterable[Text], width: int, *, indent: int, gap: int) -> Iterator[Text]:
    """Put texts beside each other, in as many lines of at most `width` columns as that takes."""
    line = Text()
    for item in items:
        if line and line.cell_len + gap + item.cell_len > width:
            yield line
            line = Text()
        line.append(" " * (gap if line else indent)).append_text(item)
    if line:
        yield line


def cell_widths(amounts: Sequence[int], cells: int) -> list[int]:
    """Divide `cells` in proportion to `amounts`, to their sum exactly: whatever is not 0 gets one if there is room."""
    total = sum(amounts)
    if total == 0:
        return [0] * len(amounts)
    edges = [round(edge * cells / total) for edge in accumulate(amounts, initial=0)]
    widths = [after - before for before, after in pairwise(edges)]
    if sum(amount > 0 for amount in amounts) <= cells:
        for at, amount in enumerate(amounts):
            if amount and not widths[at]:  # the widest pays for it
                widths[at] = 1
                widths[widths.index(max(widths))] -= 1
    return widths


def _widths(titles: Sequence[str], rows: Sequence[Row]) -> list[int]:
    return [
        max([cell_width(title.removeprefix(">")), *(row[at].cell_len for row in rows)])
        for at, title in enumerate(titles)
    ]
