"""A terminal that is drawn: the real program writes to it, and what stands there becomes a PNG."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from bench.fresh import ROOT

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont
    from PIL.Image import Image as Picture

__all__ = ["Program", "Terminal", "animate", "draw", "image_of"]

_WIDTH, _HEIGHT, _MARGIN, _SIZE = 9, 19, 12, 15
_INK, _PAPER = (220, 223, 228), (17, 20, 27)
_SIXTEEN: Final = (
    *((40, 44, 52), (224, 108, 117), (122, 193, 114), (229, 192, 123), (97, 159, 239), (198, 120, 221)),
    *((86, 182, 194), (220, 223, 228), (110, 116, 128), (240, 130, 138), (150, 210, 140), (240, 210, 150)),
    *((130, 180, 250), (215, 150, 235), (120, 205, 215), (245, 247, 250)),
)
_LEVELS: Final = (0, 95, 135, 175, 215, 255)
_CONTROL: Final = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b.")
_CUT_OFF: Final = re.compile(r"\x1b(\[[?\d;]*|\][^\x07]*)?$")
_BRAILLE: Final = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
_SHADES: Final = {"█": 1.0, "▓": 0.75, "▒": 0.5, "░": 0.25}

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class _Style:
    ink: Colour = _INK
    paper: Colour | None = None
    bold: bool = False
    dim: bool = False


@dataclass
class Terminal:
    """A grid of characters with their styles, and the control sequences that gpusched and rich write (ECMA-48)."""

    columns: int
    lines: int
    _style: _Style = field(default_factory=_Style)
    _row: int = 0
    _column: int = 0
    _rest: str = ""

    def __post_init__(self) -> None:
        self._cells = [self._blank() for _ in range(self.lines)]

    @property
    def text(self) -> str:
        """What stands there, a line for each line."""
        return "\n".join("".join(character for character, _ in line).rstrip() for line in self._cells)

    @property
    def rows(self) -> list[list[tuple[str, _Style]]]:
        """The lines down to the last that is not blank, each a list of characters with their styles."""
        used = [number for number, line in enumerate(self.text.splitlines(), start=1) if line]
        return self._cells[: max(used, default=1)]

    def feed(self, text: str) -> None:
        """Take what a program writes."""
        text = self._rest + text
        cut_off = _CUT_OFF.search(text)
        self._rest = cut_off[0] if cut_off else ""
        text = text[: len(text) - len(self._rest)]
        at = 0
        for control in _CONTROL.finditer(text):
            self._put(text[at : control.start()])
            at = control.end()
            if control[2]:
                self._control(control[1], control[2])
        self._put(text[at:])

    def _blank(self) -> list[tuple[str, _Style]]:
        return [(" ", _Style())] * self.columns

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self._row += 1
            elif character >= " " and self._column < self.columns:
                self._scroll()
                self._cells[self._row][self._column] = (character, self._style)
                self._column += 1
        self._scroll()

    def _scroll(self) -> None:
        while self._row >= self.lines:
            self._cells = [*self._cells[1:], self._blank()]
            self._row -= 1

    def _control(self, text: str, kind: str) -> None:
        numbers = [int(number or 0) for number in text.strip("?").split(";")]
        if kind == "m":
            self._style = _styled(self._style, numbers)
        elif kind in "AB":
            self._row = max(0, self._row + (numbers[0] or 1) * (1 if kind == "B" else -1))
        elif kind == "G":
            self._column = max(0, numbers[0] - 1)
        elif kind == "H":
            self._row, self._column = (max(0, number - 1) for number in [*numbers, 0][:2])
        elif kind in "JK":
            self._erase(numbers[0], below=kind == "J")
        elif kind in "hl" and text == "?1049":  # to the other screen, and back
            self.__post_init__()
            self._row = self._column = 0

    def _erase(self, what: int, *, below: bool) -> None:
        blank, line = self._blank(), self._cells[self._row]
        self._cells[self._row] = blank if what else line[: self._column] + blank[self._column :]
        if below:
            self._cells[self._row + 1 :] = [self._blank() for _ in self._cells[self._row + 1 :]]


class Program:
    """A real program at a terminal; the end of `with` stops it as Ctrl-C does."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], terminal: Terminal) -> None:
        self.terminal, lines, columns = terminal, terminal.lines, terminal.columns
        self._ours, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = subprocess.Popen(
            argv,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=ROOT,
            env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(inside)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        self.follow(60)
        self._process.wait(60)
        os.close(self._ours)

    def follow(self, seconds: float) -> None:
        """Have the terminal take what the program writes, until it has ended or `seconds` are over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._ours], [], [], left)[0]:
                try:
                    written = os.read(self._ours, 65536)
                except OSError:  # it has ended, and nothing has the other side open
                    return
                self.terminal.feed(self._decoder.decode(written))


def draw(terminal: Terminal, path: Path) -> None:
    """Write what stands on the terminal as a PNG."""
    image_of(terminal).quantize(128).save(path, optimize=True)


def animate(frames: "Sequence[tuple[Picture, float]]", path: Path) -> None:
    """Write pictures as a GIF that goes on for ever, each of them for so many seconds."""
    first, *others = [image.quantize(64) for image, _ in frames]
    durations = [round(1000 * seconds) for _, seconds in frames]
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)


def image_of(terminal: Terminal, lines: int = 0) -> "Picture":
    """Return what stands on the terminal as a picture, of so many lines at the least."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(get_data_path()) / "fonts" / "ttf"
    plain, bold = (ImageFont.truetype(folder / f"DejaVuSansMono{end}.ttf", _SIZE) for end in ("", "-Bold"))
    rows = terminal.rows
    size = (2 * _MARGIN + terminal.columns * _WIDTH, 2 * _MARGIN + max(lines, len(rows)) * _HEIGHT)
    picture = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(picture)
    for row, line in enumerate(rows):
        for column, (character, style) in enumerate(line):
            corner = (_MARGIN + column * _WIDTH, _MARGIN + row * _HEIGHT)
            _draw_cell(pen, corner, character, style, bold if style.bold else plain)
    return picture


def _draw_cell(
    pen: "ImageDraw.ImageDraw", corner: tuple[int, int], character: str, style: _Style, font: "ImageFont.FreeTypeFont"
) -> None:
    end = (corner[0] + _WIDTH - 1, corner[1] + _HEIGHT - 1)
    ink = _mixed(style.ink, style.paper or _PAPER, 0.5) if style.dim else style.ink
    if style.paper:
        pen.rectangle((corner, end), fill=style.paper)
    if character in _SHADES:  # a font's own leaves gaps between lines
        pen.rectangle((corner, end), fill=_mixed(ink, style.paper or _PAPER, _SHADES[character]))
    elif "\u2800" <= character <= "\u28ff":
        _draw_braille(pen, corner, ord(character) - 0x2800, ink)
    elif character != " ":
        pen.text(corner, character, fill=ink, font=font)


def _draw_braille(pen: "ImageDraw.ImageDraw", corner: tuple[int, int], dots: int, ink: Colour) -> None:
    """Draw the dots of a character of Braille, which the font lacks: bit n of `dots` is dot n + 1 of Unicode's."""
    for bit, (column, row) in enumerate(_BRAILLE):
        if dots >> bit & 1:
            x, y = corner[0] + 1 + 4 * column, corner[1] + 1 + 5 * row
            pen.rectangle((x, y, x + 2, y + 2), fill=ink)


def _mixed(ink: Colour, paper: Colour, part: float) -> Colour:
    red, green, blue = (round(one * part + other * (1 - part)) for one, other in zip(ink, paper, strict=True))
    return red, green, blue


def _styled(style: _Style, numbers: Sequence[int]) -> _Style:
    codes = iter(numbers)
    for code in codes:
        if code == 0:
            style = _Style()
        elif code in (1, 2):
            style = replace(style, bold=style.bold or code == 1, dim=style.dim or code == 2)  # noqa: PLR2004
        elif code in (38, 48):
            colour = _extended(next(codes, 0), codes)
            style = replace(style, ink=colour) if code == 38 else replace(style, paper=colour)  # noqa: PLR2004
        elif code in (39, 49):
            style = replace(style, ink=_INK) if code == 39 else replace(style, paper=None)  # noqa: PLR2004
        else:
            style = _with_one_of_sixteen(style, code)
    return style


def _with_one_of_sixteen(style: _Style, code: int) -> _Style:
    """Return the style with a colour: 30 to 37 of ink, 40 to 47 of paper, and 60 more for the bright ones."""
    tens, number = divmod(code, 10)
    if tens not in (3, 4, 9, 10) or number > 7:  # noqa: PLR2004
        return style
    colour = _SIXTEEN[number + (8 if tens in (9, 10) else 0)]
    return replace(style, ink=colour) if tens in (3, 9) else replace(style, paper=colour)


def _extended(kind: int, codes: Iterator[int]) -> Colour:
    """Return a colour of the palette of 256 (kind 5), or one of three numbers (kind 2)."""
    if kind == 2:  # noqa: PLR2004
        return next(codes, 0), next(codes, 0), next(codes, 0)
    number = next(codes, 0)
    if number < len(_SIXTEEN):
        return _SIXTEEN[number]
    if number >= 232:  # noqa: PLR2004
        return (grey := 8 + 10 * (number - 232)), grey, grey
    red, rest = divmod(number - 16, 36)
    green, blue = divmod(rest, 6)
    return _LEVELS[red], _LEVELS[green], _LEVELS[blue]
