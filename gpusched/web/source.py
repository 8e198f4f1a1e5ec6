"""Where the page's moments are from: the status of this host, read through the API. It blocks, and knows no streams."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from gpusched.api.host import Status, queue_watch
from gpusched.errors import GpuschedError
from gpusched.web.changes import Changes, Moment
from gpusched.web.history import History
from gpusched.web.view import job_rows, view_of

__all__ = ["Reader", "Source", "error_of"]

_LOG: Final = logging.getLogger(__name__)


class Reader(Protocol):
    """What reads the status, as StatusReader does."""

    def __call__(self, kept: Status | None = None) -> Status:
        """Return the status, with the devices of `kept`."""


class Source:
    """Reads moments of a host. `open_reader` is called with the first, and again after one that failed."""

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        self._open_reader = open_reader
        self._read: Reader | None = None
        self._status: Status | None = None
        self._changes = Changes()
        self._history = History()
        self._queue = queue_watch()
        self._stamp: object = None

    def queue_has_changed(self) -> bool:
        """Return whether the queue has changed since the last reading began. It takes microseconds."""
        return self._queue() != self._stamp

    def history(self) -> dict[str, object]:
        """Return how busy the devices were, as History.view does."""
        return self._history.view()

    def moment(self, *, jobs_alone: bool = False) -> Moment | None:
        """Return the next moment, None if it is as before. One that cannot be read is an error that the page shows.

        `jobs_alone`: with the devices as they were.
        """
        self._stamp = self._queue()
        try:
            if self._read is None:
                self._read = self._open_reader()
            self._status = self._read(self._status if jobs_alone else None)
            if not jobs_alone:
                self._history.add(self._status.inventory.devices)
            return self._changes.of(view_of(self._status), job_rows(self._status.jobs, self._status.time))
        except Exception as error:  # noqa: BLE001 (else the pages would wait for ever)
            problem = error_of(error)
        self._status = None
        return self._changes.of(problem, [])


def error_of(error: Exception) -> dict[str, object]:
    """Return an error as the page shows it."""
    if isinstance(error, GpuschedError):
        return {"error": error.message, "hint": error.hint}
    _LOG.error("the page met an error", exc_info=error)
    return {"error": f"internal error: {type(error).__name__}: {error}", "hint": ""}
