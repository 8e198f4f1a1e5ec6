"""Connections of the server: one on which nothing is asked is closed."""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]

_REQUEST_S: Final = 10.0


class Connection(H11Protocol):
    """A connection on which a whole request comes within ten seconds, or at most twenty, or it is closed.

    uvicorn itself waits without an end, so 300 silent connections of another user of this host would be all that there
    are. This makes that harder: who connects again and again can still be first.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._latest: object = None
        self.loop.call_later(_REQUEST_S, self._close_if_quiet)

    def _close_if_quiet(self) -> None:
        if self.transport.is_closing():
            return
        quiet = self.cycle is None or self.cycle.response_complete
        if quiet and self._latest is self.cycle:
            self.transport.close()
            return
        self._latest = self.cycle
        self.loop.call_later(_REQUEST_S, self._close_if_quiet)
