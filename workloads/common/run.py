"""A run of a learner: how far it is, when it is done, what it saves and goes on from. Knows no network, no channel."""

import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from workloads.common.part import part_done
from workloads.common.upkeep import Upkeep

__all__ = ["Counts", "Run"]

_WEIGHTS: Final = "weights.npz"


class Counts(msgspec.Struct, kw_only=True):
    """How far a run is: what each kind of run counts, and the seconds of all its attempts."""

    seconds: float = 0.0


Counted = TypeVar("Counted", bound=Counts)


class Run(ABC, Generic[Counted]):
    """A run in `run_dir`. It saves itself in weights.npz there, and a later attempt goes on from that.

    What is there to report, to save and to load, and by which limits it ends, is the subclass's to know.
    """

    def __init__(self, run_dir: Path, counts: Counted) -> None:
        self.counts = counts
        self.stop_asked = False
        self._run_dir = run_dir
        self._path = run_dir / _WEIGHTS
        self._started = time.monotonic()
        self._note: str | None = None
        self._upkeep = Upkeep(self._report, self._save, time.monotonic)

    @property
    @abstractmethod
    def _limits(self) -> tuple[tuple[float, float], ...]:
        """What ends the run: see `part_done`."""

    @property
    @abstractmethod
    def _behind(self) -> str:
        """How far it is, in words: `7 rounds`."""

    @abstractmethod
    def _report(self) -> None:
        """Report how it goes, with `_note`. Raises OSError."""

    @abstractmethod
    def _save(self) -> None:
        """Save all that a later attempt needs. Raises OSError."""

    @abstractmethod
    def _load(self, path: Path) -> Counted:
        """Go on from what `path` holds; return how far that was. Raises UnusableWeights."""

    def _go_on(self) -> bool:
        """Go on from what an earlier attempt saved; return whether one did. Raises UnusableWeights."""
        there = self._path.exists()
        if there:
            self.counts = self._load(self._path)
            print(f"going on from {self._path} after {self._behind}", flush=True)
        self._started = time.monotonic() - self.counts.seconds
        return there

    def end_at_sigterm(self) -> None:
        """Let SIGTERM ask for the end."""
        signal.signal(signal.SIGTERM, lambda *_: self.ask_to_stop())

    def ask_to_stop(self) -> None:
        """End soon. Safe in a signal handler."""
        self.stop_asked = True

    @property
    def part_done(self) -> float | None:
        """Which part of the run is over, 0 to 1, by the limit that is nearest; None without one."""
        return part_done(*self._limits)

    @property
    def done(self) -> bool:
        """Whether somebody asked for the end or a limit is reached."""
        return self.stop_asked or self.part_done == 1

    def count_seconds(self) -> None:
        """Note how long the run has taken by now."""
        self.counts.seconds = time.monotonic() - self._started

    def save(self) -> None:
        """Save now. A full disk costs what was to be written, no more."""
        self._upkeep.save()

    def keep(self, note: str | None = None) -> None:
        """Report, with a note, and save, each when it is time."""
        self.count_seconds()
        self._note = note
        self._upkeep.keep()
