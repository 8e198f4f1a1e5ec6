"""Styled text on a terminal: pieces of text with styles such as `bold red` or `black on #5fafff`.

It does the little of rich that tables need, because importing rich takes longer than reading the devices.
"""

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, Self, TextIO

from gpusched.render.text import cell_width, crop, cut, printable

__all__ = ["Text", "colours_of", "is_plain", "painted", "plain", "replace_line", "show", "width_of"]

_WITHOUT_ESCAPES: Final = ("", "dumb", "unknown")
_ATTRIBUTES: Final = {"bold": "1", "dim": "2"}  # ECMA-48, SGR; the colours are 30 to 37, and 90 to 97 where brighter
_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_LEVELS: Final = (0, 95, 135, 175, 215, 255)  # of red, green and blue in the palette of 256 colours (xterm)
_PALETTE: Final = 256
_DARK: Final = 0x90
_LONGEST_WIDTH: Final = 4
"""Digits."""


class Text:
    """One line: pieces of text, each with its style. It grows in place."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self._pieces = [(text, style)] if text else []

    @classmethod
    def assemble(cls, *parts: "str | tuple[str, str] | Text") -> Self:
        """Return one text of texts, plain or with a style."""
        whole = cls()
        for part in parts:
            if isinstance(part, Text):
                whole.append_text(part)
            else:
                whole.append(*((part,) if isinstance(part, str) else part))
        return whole

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self._pieces)

    @property
    def pieces(self) -> Iterable[tuple[str, str]]:
        """Each text and its style, in order."""
        return self._pieces

    @property
    def cell_len(self) -> int:
        """How many columns of a terminal it takes."""
        return sum(cell_width(text) for text, _ in self._pieces)

    def append(self, text: str, style: str = "") -> Self:
        """Put a text behind this one."""
        if text:
            self._pieces.append((text, style))
        return self

    def append_text(self, other: "Text") -> Self:
        """Put another text behind this one, with its styles."""
        self._pieces += other.pieces
        return self

    def join(self, texts: "Iterable[Text]") -> "Text":
        """Return the texts with this one between them."""
        whole = Text()
        for text in texts:
            if whole:
                whole.append_text(self)
            whole.append_text(text)
        return whole

    def copy(self) -> "Text":
        """Return the same text, to change it."""
        return Text().append_text(self)

    def truncate(self, width: int, *, pad: bool = False) -> None:
        """Cut what is beyond `width` columns; with `pad`, fill them up."""
        room, kept = width, list[tuple[str, str]]()
        for text, style in self._pieces:
            shown = crop(text, room)
            room -= cell_width(shown)
            if shown:
                kept.append((shown, style))
            if shown != text:
                break
        self._pieces = kept
        if pad:
            self.append(" " * room)

    def rstrip(self) -> None:
        """Cut the spaces at the end."""
        while self._pieces:
            text, style = self._pieces.pop()
            if text := text.rstrip():
                self._pieces.append((text, style))
                return


def is_plain(stream: TextIO) -> bool:
    """Return whether no escape sequence may be written: there is no terminal, or none that is known to take them."""
    return not stream.isatty() or os.environ.get("TERM", "") in _WITHOUT_ESCAPES


def colours_of(stream: TextIO) -> int:
    """Return how many colours to use: 0 where there is no terminal or the person wants none (no-color.org), 16, 256."""
    if is_plain(stream) or os.environ.get("NO_COLOR"):
        return 0
    kind = os.environ["TERM"]
    return _PALETTE if "256" in kind or os.environ.get("COLORTERM") in ("truecolor", "24bit") else 16


def width_of(stream: TextIO, otherwise: int) -> int:
    """Return how many columns a terminal has, or `otherwise`; $COLUMNS is believed first."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) <= _LONGEST_WIDTH and int(columns):
        return int(columns)
    if not stream.isatty():
        return otherwise
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except OSError:
        return otherwise


def replace_line(text: str, stream: TextIO) -> None:
    """Put a text in the place of the terminal's last line: in one row, else the next one could not take its place."""
    print(f"\r\x1b[K{cut(text, width_of(stream, 80) - 1)}", end="", file=stream, flush=True)


def painted(pieces: Iterable[tuple[str, str]], colours: int) -> str:
    """Return pieces of text with the escape sequences of their styles, for a terminal with `colours` colours.

    There are no other ones: an escape sequence in a text becomes `?`.
    """
    harmless = ((printable(text), style) for text, style in pieces)
    if not colours:
        return "".join(text for text, _ in harmless)
    return "".join(
        f"\x1b[{codes}m{text}\x1b[0m" if (codes := _codes(style, colours)) else text for text, style in harmless
    )


def show(draw: Callable[[int | None], Iterable[Text]], stream: TextIO) -> None:
    """Write what `draw` returns for the width of the terminal, in its colours; whole and plain where there is none."""
    for line in draw(width_of(stream, 80) if stream.isatty() else None):
        print(painted(line.pieces, colours_of(stream)), file=stream)


def plain(draw: Callable[[int | None], Iterable[Text]]) -> str:
    """Return the same as plain text."""
    return "\n".join(painted(line.pieces, 0) for line in draw(None))


@cache
def _codes(style: str, colours: int) -> str:
    found, behind = [], False
    for word in style.split():
        if word == "on":
            behind = True
        else:
            found.append(_ATTRIBUTES.get(word) or _colour(word, colours, behind=behind))
    return ";".join(found)


def _colour(word: str, colours: int, *, behind: bool) -> str:
    if not word.startswith("#"):
        number = _NAMES.index(word.removeprefix("bright_")) + 8 * word.startswith("bright_")
    else:
        red, green, blue = (int(word[at : at + 2], 16) for at in (1, 3, 5))
        if colours == _PALETTE:
            return f"{48 if behind else 38};5;{_of_palette(red, green, blue)}"
        number = _of_sixteen(red, green, blue)
    return str(number % 8 + (90 if number > 7 else 30) + 10 * behind)  # noqa: PLR2004 (the brighter ones begin at 8)


def _of_palette(red: int, green: int, blue: int) -> int:
    """Return the colour's number: 16 to 231 are a cube of _LEVELS, 232 to 255 are greys, 10 apart from 8 on."""
    if red == green == blue and red not in _LEVELS:
        return 232 + (red - 8) // 10
    return 16 + 36 * _LEVELS.index(red) + 6 * _LEVELS.index(green) + _LEVELS.index(blue)


def _of_sixteen(red: int, green: int, blue: int) -> int:
    """Return a colour that differs from the others: by the channels that are strong in it, or grey where it is dark."""
    strongest = max(red, green, blue)
    if strongest < _DARK:
        return 8 if strongest >= _DARK // 2 else 0
    return sum(bit for bit, channel in ((1, red), (2, green), (4, blue)) if 3 * channel >= 2 * strongest)
