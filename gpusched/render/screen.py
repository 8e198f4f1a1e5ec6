"""A terminal for one program that redraws itself: the other screen, keys as they are typed, one write a frame.

It must not know what is drawn. However it is left, the terminal is as it was: normally, by an error, by a signal, and
while the program is suspended.
"""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from gpusched.render.ansi import is_plain

__all__ = ["Screen", "can_redraw"]

# xterm control sequences: 1049 the other screen, 25 the cursor, 7 wrapping at the edge, 2026 hold what is drawn
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
_QUIT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED: Final = (*_QUIT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def can_redraw() -> bool:
    """Return whether the standard output is a terminal, and one whose cursor can be moved."""
    return not is_plain(sys.stdout)


class Screen:
    """The terminal, taken over between `with` and its end. Signals only wake `wait`, and are noted.

    `quit_by` is the signal that asked for an end, once one did; after the end of `with`, SIGTERM and SIGHUP have the
    effect they have on any program.
    """

    def __init__(self) -> None:
        self.quit_by: int | None = None
        self._resized = True
        self._suspended = False
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()

    def __enter__(self) -> Self:
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._before = {number: signal.signal(number, self._note) for number in _NOTED}
        self._wakeup_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._wakes)
        os.close(self._wake)
        if self.quit_by not in (None, signal.SIGINT):
            signal.raise_signal(self.quit_by)

    def size(self) -> tuple[int, int]:
        """Return columns and lines of the terminal."""
        size = os.get_terminal_size(self._out)
        return max(size.columns, 1), max(size.lines, 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Show `lines` from the top, in one write; what was there goes, without being blank in between."""
        body = "\x1b[K\r\n".join(lines)
        self._write(f"{_BEGIN}{body}\x1b[K{_END}")

    def wait(self, seconds: float) -> tuple[str, bool]:
        """Wait for keys, a new size or a signal, at most `seconds`; return the keys, and whether the size is new."""
        ready, _, _ = select.select([self._in, self._wakes], [], [], max(0.0, seconds))
        if self._wakes in ready:
            os.read(self._wakes, 4096)
        if self._suspended:
            self._suspend()
        keys = os.read(self._in, 256) if self._in in ready else None
        if keys == b"":  # the terminal is gone
            self.quit_by = signal.SIGHUP
        resized, self._resized = self._resized, False
        return (keys or b"").decode("ascii", "ignore"), resized

    def _note(self, number: int, _frame: object) -> None:
        if number in _QUIT:
            self.quit_by = number
        elif number == signal.SIGTSTP:
            self._suspended = True
        self._resized = True

    def _suspend(self) -> None:
        self._suspended = False
        self._give_back()
        signal.raise_signal(signal.SIGSTOP)  # returns when the person brings the program back
        self._take()

    def _take(self) -> None:
        self._terminal = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        self._write(_ENTER)

    def _give_back(self) -> None:
        try:
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._terminal)
        except OSError:
            pass  # the terminal is gone: there is nothing to give back

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode(sys.stdout.encoding or "ascii", "replace"))
        while rest:
            rest = rest[os.write(self._out, rest) :]
