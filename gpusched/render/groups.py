"""Draws groups of the queue as a table."""

from collections.abc import Sequence
from typing import Final

from gpusched.model.queue_group import GroupStatus
from gpusched.render.ansi import Text
from gpusched.render.table import lines_of
from gpusched.render.text import cut, printable

__all__ = ["draw_groups"]

_TITLES: Final = ("GROUP", ">RUNNING", ">WAITING", ">AT MOST", "STATE")
_LONGEST_NAME: Final = 40


def draw_groups(groups: Sequence[GroupStatus]) -> list[Text]:
    """Return the lines of the table, which is never cut."""
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
