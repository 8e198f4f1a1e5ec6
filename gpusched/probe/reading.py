"""Calls that may never return: each runs in a daemon thread, and its caller waits no longer than it wants.

A thread cannot be stopped inside a foreign library, so one that is stuck is left behind; being a daemon, it does not
keep the process from ending.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Reading"]

Result = TypeVar("Result")


class Reading(Generic[Result]):
    """One call of `work`, begun at once."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: list[Result] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether the call has returned."""
        return self._done.wait(max(0.0, seconds))

    def result(self) -> Result:
        """Return what the call returned, or raise what it raised. Only after `wait` returned True."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except Exception as error:  # noqa: BLE001 (the caller of `result` gets it)
            self._error = error
        self._done.set()
