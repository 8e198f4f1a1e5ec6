"""What a learner does beside its training, each when it is time: it tells how it goes, and saves itself."""

import sys
from collections.abc import Callable
from typing import Final

__all__ = ["Upkeep"]

_REPORT_EVERY_S: Final = 2.0
_SAVE_EVERY_S: Final = 10.0


class Upkeep:
    """Calls `report` every 2 s and `save` every 10 s, both at the first call; `clock` gives seconds."""

    def __init__(self, report: Callable[[], None], save: Callable[[], None], clock: Callable[[], float]) -> None:
        self._report, self._save, self._clock = report, save, clock
        self._next_report = self._next_save = 0.0

    def keep(self) -> None:
        """Do what is due. A full disk costs what was to be written, not the training."""
        now = self._clock()
        try:
            if now >= self._next_report:
                self._next_report = now + _REPORT_EVERY_S
                self._report()
            if now >= self._next_save:
                self._next_save = now + _SAVE_EVERY_S
                self._save()
        except OSError as error:
            print(f"not written: {error}", file=sys.stderr, flush=True)
