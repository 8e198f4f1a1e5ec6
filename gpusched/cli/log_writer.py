"""How the lines of a log are printed: as they are, with a name in front, or as JSON."""

import json
import sys
from typing import Final

__all__ = ["Writer"]

_LONGEST_LINE: Final = 1 << 20


class Writer:
    """Prints pieces of the log of the replica `name`. `width` is that of all the names in front, 0 for none.

    With `final`, what a carriage return overwrote in its line is left out, as all but the last state of a progress bar.
    """

    def __init__(self, name: str, width: int, *, as_json: bool, final: bool = False) -> None:
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


def _last_state(line: bytes) -> bytes:
    """Return what is behind the last carriage return of a line that is followed by anything."""
    shown = line.rstrip(b"\r")
    return shown.rpartition(b"\r")[2] + line[len(shown) : len(shown) + 1]
