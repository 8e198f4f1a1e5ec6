"""A log file that grows, and how its lines are printed: as they are, with a name in front, or as JSON."""

import json
import os
import sys
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault
from gpusched.linux.regular_files import next_data, open_regular

__all__ = ["LogTail", "Writer"]

_BLOCK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20
_LONGEST_SEARCH: Final = 1 << 28


class Writer:
    """Prints pieces of the log of the replica `name`. `width` is that of all the names in front, 0 for none.

    With `final`, what a carriage return overwrote in its line is left out, as all but the last state of a progress bar.
    """

    def __init__(self, name: str, *, width: int, as_json: bool, final: bool = False) -> None:
        self._name, self._as_json = name, as_json
        self._head = f"{name:<{width}} | ".encode() if width else b""
        self._rest = b""
        self._final, self._unfinished = final, b""

    def write(self, piece: bytes) -> None:
        """Print what was written to the log; with a name in front only whole lines, the rest when it is whole."""
        self._write(self._finished(piece) if self._final else piece)

    def flush(self) -> None:
        """Print a last line that has no end."""
        self._write(self._unfinished)
        self._unfinished = b""
        if self._rest:
            self._put(self._line(self._rest))
            self._rest = b""

    def _finished(self, piece: bytes) -> bytes:
        """Return the lines that are whole by now, each as a terminal would show it in the end."""
        *lines, rest = (self._unfinished + piece).split(b"\n")
        self._unfinished = _last_state(rest)
        if len(self._unfinished) > _LONGEST_LINE:
            rest, self._unfinished = self._unfinished, b""
        else:
            rest = b""
        return b"".join(_last_state(line) + b"\n" for line in lines) + rest

    def _write(self, piece: bytes) -> None:
        if not self._head and not self._as_json:
            self._put(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._put(b"".join(map(self._line, lines)))

    def _line(self, line: bytes) -> bytes:
        if self._as_json:
            return json.dumps({"replica": self._name, "line": line.decode(errors="replace")}).encode() + b"\n"
        return self._head + line + b"\n"

    def _put(self, piece: bytes) -> None:
        if piece:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


class LogTail:
    """The log `path` from its last `lines` lines on (None: from its beginning), whether it is there yet or not."""

    def __init__(self, path: Path, lines: int | None, writer: Writer) -> None:
        self._path, self._writer = path, writer
        self._position = 0 if lines is None else _position_of(path, lines)

    def show(self, *, last: bool = False) -> None:
        """Print what has been added since the last call; `last`: also a line that has no end yet. Raises HostFault.

        What is added while it prints is for the next call, or a program that writes faster than this reads would keep
        it for ever. What nothing was ever written to, in a log that was cut short or made long, is left out.
        """
        try:
            descriptor = open_regular(self._path, os.O_RDONLY)
            try:
                self._show_until(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.filename is None:  # it is the output that cannot be written
                raise
            raise HostFault(f"{self._path}: {error.strerror}", "make it a readable file") from None
        if last:
            self._writer.flush()

    def _show_until(self, descriptor: int, end: int) -> None:
        if end < self._position:  # somebody has emptied it
            self._position = 0
        while self._position < end:
            self._position = next_data(descriptor, self._position)
            piece = os.pread(descriptor, max(0, min(_BLOCK, end - self._position)), self._position)
            if not piece:
                break
            self._position += len(piece)
            self._writer.write(piece)


def _position_of(path: Path, lines: int) -> int:
    """Return where the last `lines` lines of a file begin; of those that it can have in its last 256 MiB."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        end, span, found = os.fstat(descriptor).st_size, 0, b""
        while span < min(end, _LONGEST_SEARCH) and found.count(b"\n") <= lines:
            span = min(end, max(_BLOCK, 4 * span))
            found = os.pread(descriptor, span, end - span)
    finally:
        os.close(descriptor)
    if not lines:
        return end
    *whole, rest = found.split(b"\n")
    kept = [*(line + b"\n" for line in whole), *([rest] if rest else [])][-lines:]
    return end - sum(map(len, kept))


def _last_state(line: bytes) -> bytes:
    """Return what is behind the last carriage return of a line that is followed by anything."""
    shown = line.rstrip(b"\r")
    return shown.rpartition(b"\r")[2] + line[len(shown) : len(shown) + 1]
