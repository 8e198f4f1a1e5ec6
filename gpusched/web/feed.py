"""What the page shows, read once for all who watch it, and only while somebody does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from gpusched.api.host import Status, status_reader
from gpusched.errors import GpuschedError
from gpusched.web.view import view_of

__all__ = ["Feed"]

_EVERY_S: Final = 1.0


class Feed:
    """The latest moment as JSON, for each stream that is open. A slow reader misses moments, and keeps none of them."""

    def __init__(self, reader: Callable[[], Callable[[], Status]] = status_reader, every_s: float = _EVERY_S) -> None:
        self._reader, self._every_s = reader, every_s
        self._changed = asyncio.Condition()
        self._latest = b""
        self._number = 0
        self._watching = 0
        self._task: asyncio.Task[None] | None = None

    async def moments(self) -> AsyncIterator[bytes]:
        """Yield the moment of now, and then each that differs from the one before."""
        self._watching += 1
        seen = self._number - 1 if self._task is not None and self._latest else self._number
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        try:
            while True:
                async with self._changed:
                    while self._number <= seen:
                        await self._changed.wait()
                    seen, latest = self._number, self._latest
                yield latest
        finally:
            self._watching -= 1

    async def _read(self) -> None:
        """Read again and again while a page is open. NVML and the daemon answer in another thread."""
        try:
            read = await asyncio.to_thread(self._reader)
            while self._watching:
                await self._publish(await asyncio.to_thread(_moment, read))
                await asyncio.sleep(self._every_s)
        finally:
            self._task = None
            self._latest = b""

    async def _publish(self, moment: bytes) -> None:
        async with self._changed:
            if moment != self._latest:
                self._latest = moment
                self._number += 1
                self._changed.notify_all()


def _moment(read: Callable[[], Status]) -> bytes:
    try:
        return msgspec.json.encode(view_of(read()))
    except GpuschedError as error:
        return msgspec.json.encode({"error": error.message, "hint": error.hint})
