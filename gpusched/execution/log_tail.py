"""A log file that grows: what was added to it since it was read last."""

import os
from pathlib import Path
from typing import Final, Protocol

from gpusched.errors import HostFault
from gpusched.linux.regular_files import next_data, open_regular

__all__ = ["LogTail", "Sink"]

_BLOCK: Final = 1 << 16
_LONGEST_SEARCH: Final = 1 << 28


class Sink(Protocol):
    """Takes the bytes of a log, as pieces that may end within a line; a binary file is one."""

    def write(self, piece: bytes, /) -> object:
        """Take the next piece."""

    def flush(self) -> object:
        """Take a last line that has no end as it is."""


class LogTail:
    """The log `path` from its last `lines` lines on (None: from its beginning), whether it is there yet or not."""

    def __init__(self, path: Path, lines: int | None, writer: Sink) -> None:
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
        if end < self._position:  # it was emptied
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
