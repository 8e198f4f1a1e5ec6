"""What the bench shows while it measures: a line for each measurement, and in a terminal what is under way."""

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["Screen", "span"]


class Screen:
    """Shows measurements as they begin and end; `left_s` tells how many seconds all that is left will take."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        self._left_s = left_s
        self._console = Console(stderr=True, highlight=False)
        self._now = ""
        self._began = time.monotonic()
        self._live = Live(get_renderable=self._line, console=self._console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        self._console.print(f"This will take about {span(self._left_s())}.")
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begins(self, section: str, row: str, number: int, rounds: int) -> None:
        """Show what is measured now, the `number`th time of `rounds`."""
        self._now = f"{section:<12} {row}, {number} of {rounds}"
        self._began = time.monotonic()

    def ended(self, note: str | None, seconds: float) -> None:
        """Leave a line: how long it took, or why there are no figures."""
        told = note.strip().splitlines()[-1] if note else f"{seconds:.1f} s"
        self._console.print(
            Text(f"{self._now}: {told}"), Text(f"· {span(self._left_s())} left", style="dim"), soft_wrap=True
        )

    def _line(self) -> Text:
        taken = time.monotonic() - self._began
        left = max(0.0, self._left_s() - taken)
        return Text(f"{self._now}: {taken:.0f} s … about {span(left)} left", style="bold")


def span(seconds: float) -> str:
    """Return a time for people, in words that are as exact as an estimate is: `40 s`, `12 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 (a minute and a half)
