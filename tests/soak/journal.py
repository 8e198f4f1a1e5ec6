"""What a soak writes down: its log, each violation with the moment and the details, counts of what was done."""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Journal", "Window"]

MOST_VIOLATIONS: Final = 50


@dataclass
class Window:
    """A span in which something was wrong on purpose; `end` is None while it lasts. Monotonic seconds."""

    name: str
    begin: float
    end: float | None = None


@dataclass
class Journal:
    """One log file, and what the report needs."""

    path: Path
    begun: float = field(default_factory=time.monotonic)
    done: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    def log(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{time.monotonic() - self.begun:9.2f} {text}\n")

    def violation(self, invariant: str, details: str) -> None:
        """An invariant does not hold; the soak goes on, so that one fault does not hide others."""
        self.log(f"VIOLATION {invariant}: {details}")
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(f"{time.monotonic() - self.begun:.0f} s: {invariant}: {details[:2000]}")

    def note(self, text: str) -> None:
        """Something that was left out here, with its reason."""
        if text not in self.notes:
            self.log(f"note: {text}")
            self.notes.append(text)

    def open(self, name: str) -> Window:
        window = Window(name, time.monotonic())
        self.windows.append(window)
        self.log(f"begin {name}")
        return window

    def close(self, window: Window) -> None:
        window.end = time.monotonic()
        self.log(f"end {window.name}")

    def during(self, begin: float, end: float, *names: str, margin_s: float = 5.0) -> list[str]:
        """Names of the windows (of these names, or all) that overlap a span, or ended shortly before."""
        return [
            window.name
            for window in self.windows
            if (not names or window.name in names)
            and window.begin <= end
            and (window.end is None or window.end + margin_s >= begin)
        ]
