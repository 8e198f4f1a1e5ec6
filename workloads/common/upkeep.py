"""What a learner does beside its training, each when it is time: it tells how it goes, and saves itself.

A full disk costs what was to be written, not the training.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Upkeep", "told_if_not_written"]

_REPORT_EVERY_S: Final = 2.0
_SAVE_EVERY_S: Final = 10.0


class Upkeep:
    """Calls `report` every 2 s and `save` every 10 s, both at the first call; `clock` gives seconds."""

    def __init__(self, report: Callable[[], None], save: Callable[[], None], clock: Callable[[], float]) -> None:
        self._report, self._save, self._clock = report, save, clock
        self._next_report = self._next_save = 0.0

    def keep(self) -> None:
        """Do what is due."""
        now = self._clock()
        with told_if_not_written():
            if now >= self._next_report:
                self._next_report = now + _REPORT_EVERY_S
                self._report()
            if now >= self._next_save:
                self.save()

    def save(self) -> None:
        """Save now; the next time is 10 s later."""
        self._next_save = self._clock() + _SAVE_EVERY_S
        with told_if_not_written():
            self._save()


@contextmanager
def told_if_not_written() -> Iterator[None]:
    """Within it, an OSError is told, and ends only what stands there."""
    try:
        yield
    except OSError as error:
        print(f"not written: {error}", file=sys.stderr, flush=True)
