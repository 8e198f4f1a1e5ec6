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
        self._name, self._as_json, self._final = name, as_json, final
        self._head = f"{name:<{width}} | ".encode() if width else b""
        self._rest = b""

    def write(self, piece: bytes) -> None:
        """Print what was written to the log; with a name in front only whole lines, the rest when it is whole."""
        if not (self._head or self._as_json or self._final):
            self._put(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if self._final:
            self._rest = _last_state(self._rest)
        self._put(b"".join(self._line(line, b"\n") for line in lines))
        if len(self._rest) > _LONGEST_LINE:
            self.flush()

    def flush(self) -> None:
        """Print a last line that has no end."""
        if self._rest:
            self._put(self._line(self._rest, b"\n" if self._head or self._as_json else b""))
            self._rest = b""

    def _line(self, line: bytes, end: bytes) -> bytes:
        shown = _last_state(line) if self._final else line
        if self._as_json:
            return json.dumps({"replica": self._name, "line": shown.decode(errors="replace")}).encode() + b"\n"
        return self._head + shown + end

    def _put(self, piece: bytes) -> None:
        if piece:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def _last_state(line: bytes) -> bytes:
    """Return what is behind the last carriage return of a line that is followed by anything."""
    shown = line.rstrip(b"\r")
    return shown.rpartition(b"\r")[2] + line[len(shown) : len(shown) + 1]
