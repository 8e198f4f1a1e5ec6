"""Wait for the end of a job that an engine runs, and pass on requests to end it."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpusched.engines.base import Engine, Seen
from gpusched.execution.nodes import write_engine_note

__all__ = ["Requests", "report_end", "telling", "wait_for_engine"]

POLL_EVERY_S: Final = 0.2


class Requests:
    """How often this process was asked to end, from here on; what is asked on several ways at once counts once."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._count)

    def ask(self, *, kill: bool = False) -> None:
        """Ask for an end in order, or at once."""
        self.count = max(self.count, 2 if kill else 1)

    def _count(self, *_: object) -> None:
        self.count += 1


def wait_for_engine(
    engine: Engine, requests: Requests, wanted: Callable[[Seen], bool], *, every_s: float = POLL_EVERY_S
) -> Seen:
    """Return how the job ended. After each poll `wanted` returns whether it is to go on; the first False is final.

    The first request ends the job in order, a second one at once.
    """
    passed_on = 0
    while True:
        seen = engine.poll()
        goes_on = wanted(seen)
        if seen.over:
            return seen
        asked = passed_on < requests.count or (not goes_on and not passed_on)
        if asked and engine.cancel(kill=passed_on > 0):
            passed_on += 1
        deadline = time.monotonic() + every_s
        while (asked or passed_on >= requests.count) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, POLL_EVERY_S))


def telling(job: Path) -> Callable[[Seen], bool]:
    """Return a `wanted` for wait_for_engine: it leaves each new message of the cluster where `status` reads it."""
    last = ""

    def report(now: Seen) -> bool:
        nonlocal last
        if now.message != last:
            with suppress(OSError):
                write_engine_note(job, now.message)
            last = now.message
        return True

    return report


def report_end(job: Path, message: str) -> None:
    """Print why the job ended, and leave it where `status` finds it."""
    print(message, flush=True)
    with suppress(OSError):
        write_engine_note(job, message, last=True)
