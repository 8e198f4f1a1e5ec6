"""What the page shows, read once for all who watch it, and only while somebody does."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec

from gpusched.api.host import Status, status_reader
from gpusched.errors import GpuschedError
from gpusched.web.view import view_of

__all__ = ["Feed"]

_LOG: Final = logging.getLogger(__name__)
_EVERY_S: Final = 1.0
_SENT_AGAIN: Final = 15
"""After this many readings without a change the moment is sent again, so that a page that left in silence is noticed."""


class Feed:
    """The latest moment as JSON, for each stream that is open. A slow reader misses moments, and keeps none of them."""

    def __init__(self, reader: Callable[[], Callable[[], Status]] = status_reader, every_s: float = _EVERY_S) -> None:
        self._reader, self._every_s = reader, every_s
        self._read: Callable[[], Status] | None = None
        self._changed = asyncio.Condition()
        self._latest = b""
        self._number = 0
        self._watching = 0
        self._task: asyncio.Task[None] | None = None

    async def moments(self) -> AsyncGenerator[bytes]:
        """Yield the moment of now, then each that differs from the one before, and now and then the same again."""
        self._watching += 1
        seen = self._number - 1 if self._task is not None and self._latest else self._number
        if self._task is None:
            self._task = asyncio.create_task(self._read_on())
        try:
            while True:
                async with self._changed:
                    while self._number <= seen:
                        await self._changed.wait()
                    seen, latest = self._number, self._latest
                yield latest
        finally:
            self._watching -= 1

    async def _read_on(self) -> None:
        """Read again and again while a page is open. NVML and the daemon answer in another thread."""
        same = 0
        try:
            while self._watching:
                moment = await asyncio.to_thread(self._moment)
                same = same + 1 if moment == self._latest else 0
                if same % _SENT_AGAIN == 0:
                    await self._publish(moment)
                await asyncio.sleep(self._every_s)
        finally:
            self._task = None
            self._latest = b""

    async def _publish(self, moment: bytes) -> None:
        async with self._changed:
            self._latest = moment
            self._number += 1
            self._changed.notify_all()

    def _moment(self) -> bytes:
        """Return this moment; one that cannot be read is an error that the page shows, and the next is read again."""
        try:
            if self._read is None:
                self._read = self._reader()
            return msgspec.json.encode(view_of(self._read()))
        except GpuschedError as error:
            return msgspec.json.encode({"error": error.message, "hint": error.hint})
        except Exception as error:  # noqa: BLE001 (else the pages would wait for ever)
            _LOG.exception("this moment cannot be read")
            return msgspec.json.encode({"error": f"internal error: {type(error).__name__}: {error}", "hint": ""})
