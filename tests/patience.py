"""How long a test waits for what has to come: a bound that only a hang meets, also on a slow host that is busy."""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["DRIVER_PATIENCE_S", "PATIENCE_S", "until"]

PATIENCE_S: Final = 240.0

DRIVER_PATIENCE_S: Final = 100.0
"""How long the tests' processes wait for NVML; a test of a driver that hangs sets a shorter time of its own."""


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S, every_s: float = 0.02) -> None:
    """Wait until `condition` holds. A file that is not there yet is a condition that does not hold yet.

    The wait takes half of a CPU at most, also where the condition is a whole command: the host has other tests to run.
    """
    began = asked = time.monotonic()
    while not _holds(condition):
        now = time.monotonic()
        assert now - began < seconds, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(max(every_s, now - asked))
        asked = time.monotonic()


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except FileNotFoundError:
        return False
