"""`status --watch`: the status in place. It reads in the background, so that keys are answered while NVML is slow."""

import sys
import time
from collections.abc import Callable
from typing import Final

from gpusched.errors import UsageError
from gpusched.execution.snapshot import Snapshot
from gpusched.probe.reading import Reading
from gpusched.render.screen import Screen, can_redraw

__all__ = ["watch_status"]

_LATE_S: Final = 1.5
_MOVES: Final = {
    "j": 1,
    "\x1b[B": 1,
    "k": -1,
    "\x1b[A": -1,
    "\x1b[6~": 10,
    " ": 10,
    "\x1b[5~": -10,
    "g": -1_000_000,
    "G": 1_000_000,
}


def watch_status(read: Callable[[], Snapshot], interval_s: float, *, unicode: bool) -> None:
    """Show what `read` returns, `interval_s` apart, until the person quits (q, Ctrl-C) or a signal ends the program.

    Raises UsageError without a terminal, and whatever `read` raises.
    """
    if not (sys.stdin.isatty() and can_redraw()):
        raise UsageError("--watch needs a terminal that can move its cursor", "leave it out, or run it in one")
    view = _View(read, interval_s, unicode=unicode)
    with Screen() as screen:
        while screen.quit_by is None:
            if view.refresh():
                screen.draw(view.lines(*screen.size()))
            keys, resized = screen.wait(view.patience())
            if "q" in keys:
                return
            view.handle(keys, resized=resized)


class _View:
    """The last snapshot, the read that is under way, and which part of the drawing is on the screen."""

    def __init__(self, read: Callable[[], Snapshot], interval_s: float, *, unicode: bool) -> None:
        self._read, self._interval_s, self._unicode = read, interval_s, unicode
        self._reading: Reading[Snapshot] | None = None
        self._begun = -interval_s
        self._snapshot: Snapshot | None = None
        self._top = 0
        self._changed = True
        self._shown_late = 0

    def refresh(self) -> bool:
        """Begin or take in a read, as the time has come; return whether there is something new to draw."""
        now = time.monotonic()
        if self._reading is None and now - self._begun >= self._interval_s:
            self._reading, self._begun = Reading(self._read, "status-read"), now
        if self._reading is not None and self._reading.wait(0):
            self._snapshot, self._reading, self._changed = self._reading.result(), None, True
        late = self._late()
        changed, self._changed = self._changed or late != self._shown_late, False
        self._shown_late = late
        return changed

    def patience(self) -> float:
        """Return how long nothing will happen by itself, in seconds."""
        return 0.05 if self._reading is not None else self._begun + self._interval_s - time.monotonic()

    def handle(self, keys: str, *, resized: bool) -> None:
        """Move by the keys that were typed."""
        self._changed |= resized
        for key, step in _MOVES.items():
            if key in keys:
                self._top, self._changed = max(0, self._top + step * keys.count(key)), True

    def lines(self, columns: int, rows: int) -> list[str]:
        """Return what belongs on a screen of that size: a part of the status, and a last line about the keys."""
        if self._snapshot is None:
            body = ["reading the devices ..."]
        else:
            from gpusched.render.status import status_lines

            # one column stays free: erasing the rest of a full line would take its last character
            body = status_lines(self._snapshot, max(columns - 1, 1), unicode=self._unicode)
        room = max(1, rows - 1)
        self._top = min(self._top, max(0, len(body) - room))
        shown = body[self._top : self._top + room]
        return [*shown, *[""] * (room - len(shown)), self._footer(len(body), room)[:columns]]

    def _footer(self, total: int, room: int) -> str:
        parts = ["q quits"]
        if total > room:
            parts.append(f"lines {self._top + 1}-{min(self._top + room, total)} of {total}, arrows move")
        if self._shown_late:
            parts.append(f"waiting for NVML for {self._shown_late} s")
        return "  ".join(parts)

    def _late(self) -> int:
        waited = time.monotonic() - self._begun if self._reading is not None else 0.0
        return int(waited) if waited >= _LATE_S else 0
