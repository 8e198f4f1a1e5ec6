"""Draws groups of the queue as a table."""

import sys
from collections.abc import Sequence
from typing import Final, TextIO

from gpusched.model.queue_group import GroupStatus
from gpusched.render.ansi import Text, colours_of, painted
from gpusched.render.table import lines_of
from gpusched.render.text import cut, printable

__all__ = ["groups_text", "print_groups"]

_TITLES: Final = ("GROUP", ">RUNNING", ">WAITING", ">AT MOST", "STATE")
_LONGEST_NAME: Final = 40


def print_groups(groups: Sequence[GroupStatus], stream: TextIO = sys.stdout) -> None:
    """Write groups to `stream`, each in a line."""
    colours = colours_of(stream)
    for line in _lines(groups):
        print(painted(line.pieces, colours), file=stream)


def groups_text(groups: Sequence[GroupStatus]) -> str:
    """Return groups as a table in plain text."""
    return "\n".join(line.plain for line in _lines(groups))


def _lines(groups: Sequence[GroupStatus]) -> list[Text]:
    rows = [
        [
            Text(cut(printable(group.name), _LONGEST_NAME), "bold"),
            Text(str(group.running)),
            Text(str(group.waiting)),
            Text("-" if group.at_most is None else str(group.at_most)),
            Text("paused", "yellow") if group.paused else Text("open"),
        ]
        for group in groups
    ]
    head, *lines = lines_of(_TITLES, rows, None)
    return [Text(head.plain, style="dim"), *lines]
