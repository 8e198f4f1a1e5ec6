"""A log that has grown beyond its cap is cut in its middle: its beginning stays, and the latest half of the cap.

    0 .. HEAD         what was written first; in its last bytes stands a line with how much was cut
    HEAD .. end       what was cut: a hole, where the file system makes holes; else what follows is moved up
    end ..            the latest

The processes of the replica write to the file all the while, each time at its end. A hole leaves every byte where it
is: nothing is lost beside it, and a reader's position stays true. Where there are no holes, what is written between
the last read and the truncation is lost, and a reader moves its position up by what was cut.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from gpusched.linux.holes import NoHolesError, punch_hole
from gpusched.linux.regular_files import open_regular

__all__ = ["HEAD", "LogCut", "cut_line", "cut_log", "read_cut"]

HEAD: Final = 1 << 20
"""How many bytes of a log's beginning stay. A multiple of the blocks of every file system."""

_MARK_BYTES: Final = 160
_BLOCK: Final = 1 << 20
_MARK: Final = re.compile(
    rb"\n\[gpusched: .{1,40} \((\d{1,18}) bytes\) of this log were cut here(, and the rest moved)?;.*\n"
)


class LogCut(NamedTuple):
    """How many bytes of a log were cut in all, and whether what followed them was moved to where they were."""

    size: int
    moved: bool = False

    @property
    def hole(self) -> int:
        """How much larger than its content the file is."""
        return 0 if self.moved else self.size


def cut_log(path: Path, cap: int) -> LogCut | None:
    """Cut the log `path` if it holds more than `cap` bytes; return what was cut of it so far. Raises OSError."""
    descriptor = open_regular(path, os.O_RDWR)
    try:
        before, end = read_cut(descriptor), os.fstat(descriptor).st_size
        if end - (before.hole if before else 0) <= cap:
            return before
        begin = (end - cap // 2) // HEAD * HEAD
        try:
            punch_hole(descriptor, HEAD, begin)
        except NoHolesError:
            cut = LogCut((before.size if before else 0) + begin - HEAD, moved=True)
            _move_up(descriptor, begin, cap, _mark(cut))
        else:
            cut = LogCut(begin - HEAD)
            os.pwrite(descriptor, _mark(cut), HEAD - _MARK_BYTES)
        return cut
    finally:
        os.close(descriptor)


def read_cut(descriptor: int) -> LogCut | None:
    """Return what was cut of a log that is open, None if nothing was. Raises OSError."""
    found = _MARK.fullmatch(os.pread(descriptor, _MARK_BYTES, HEAD - _MARK_BYTES))
    return LogCut(int(found[1]), found[2] is not None) if found else None


def cut_line(size: int, *, moved: bool = False) -> bytes:
    """Return the line, with a line end before and after it, that a reader sees where `size` bytes were cut."""
    rest = ", and the rest moved" if moved else ""
    shown = f"{size / (1 << 20):.0f} MiB ({size} bytes)"
    return f"\n[gpusched: {shown} of this log were cut here{rest}; log_cap in the configuration]\n".encode()


def _mark(cut: LogCut) -> bytes:
    return cut_line(cut.size, moved=cut.moved)[:-1].ljust(_MARK_BYTES - 1) + b"\n"


def _move_up(descriptor: int, begin: int, most: int, mark: bytes) -> None:
    """Move what is from `begin` on, and what is added meanwhile, up to HEAD, and cut the file behind it.

    At most `most` bytes: a program may write as fast as this reads.
    """
    position = begin
    while position - begin < most and (block := os.pread(descriptor, _BLOCK, position)):
        position += os.pwrite(descriptor, block, HEAD + position - begin)
    os.pwrite(descriptor, mark, HEAD - _MARK_BYTES)
    os.ftruncate(descriptor, HEAD + position - begin)
