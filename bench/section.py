"""What a part of the bench is made of: rows that are measured in turn, their figures, and what they must show.

Pure values; run.py measures them and report.py writes them down.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import msgspec

__all__ = ["Figure", "Goal", "Kind", "Measured", "Missing", "Row", "Section"]

Measured = Mapping[str, float | Sequence[float]]
"""Figures by their key. Several values of one figure come from parts of one run: from each minute of a long one."""

Kind = Literal["ours", "original", "strong", "other", "limit"]
"""`original`: the design that this project replaces. `strong`: what a careful person would write. `other`: a peer such
as Ray, gpustat. `limit`: what the machine can do, such as memcpy."""


class Missing(Exception):
    """A peer is not installed here, or cannot run: the row is left out, and the table says why."""


class Figure(msgspec.Struct, frozen=True):
    """What one number of a row means: `name` in the table, its `unit`, and whether `more` or `less` of it is better."""

    name: str
    unit: str
    better: Literal["more", "less"]


class Row(msgspec.Struct, frozen=True):
    """One way of doing it. `measure(quick)` does it once, as a whole, and returns figures by their key.

    `measure` raises Missing if it cannot. `rounds` None: as often as the section says; a slow one may say less.
    """

    name: str
    kind: Kind
    measure: Callable[[bool], Measured]
    rounds: int | None = None


class Goal(msgspec.Struct, frozen=True):
    """What `row` must show in `figure`: `times` better than the row `than`, or, without one, no worse than `bound`.

    A row that is twice as fast is 2 times better, whether its figure counts seconds or steps a second.
    """

    text: str
    figure: str
    row: str
    than: str | None = None
    times: float = 1.0
    bound: float | None = None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table. In each of `rounds` every row is measured once, ours beside theirs; `quick_rounds` for a first look.

    `about` tells the reader in two or three sentences what is done, and what is not fair about it. `around` is entered
    before the first measurement and left after the last. `takes_s` and `quick_takes_s`: how long all of it takes; 0: a
    quick look leaves it out.
    """

    name: str
    title: str
    about: str
    figures: Mapping[str, Figure]
    rows: tuple[Row, ...]
    goals: tuple[Goal, ...] = ()
    rounds: int = 5
    quick_rounds: int = 1
    takes_s: int = 60
    quick_takes_s: int = 15
    around: Callable[[], AbstractContextManager[object]] = nullcontext
