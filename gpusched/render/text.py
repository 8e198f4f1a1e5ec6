"""Texts of others on a terminal: made harmless, measured, cut. It imports nothing that could be broken."""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Final

__all__ = ["cell_width", "crop", "cut", "cut_middle", "index_runs", "printable"]

_LEAST_TO_SPLIT: Final = 12


def printable(text: str) -> str:
    """Return a foreign text without what could move a terminal's cursor: control characters become `?`."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` columns; what is cut off is three dots."""
    if cell_width(text) <= width:
        return text
    return (crop(text, width - 3) + "...")[: max(width, 0)]


def cut_middle(text: str, width: int) -> str:
    """Return the text in at most `width` columns; three dots stand for its middle, nearer to its beginning.

    Commands that differ do so at their end, most often.
    """
    if cell_width(text) <= width or width < _LEAST_TO_SPLIT:
        return cut(text, width)
    head = crop(text, (width - 3) // 3)
    return f"{head}...{crop(text[::-1], width - 3 - cell_width(head))[::-1]}"


def crop(text: str, width: int) -> str:
    """Return what of the text has room in `width` columns."""
    if text.isascii():
        return text[: max(width, 0)]
    for at, character in enumerate(text):
        width -= _cells(character)
        if width < 0:
            return text[:at]
    return text


def index_runs(indices: Sequence[int]) -> list[str]:
    """Return `0-3` and `5` for 0, 1, 2, 3, 5."""
    runs = [list(run) for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0])]
    return [str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs]


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
