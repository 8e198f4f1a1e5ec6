"""Server-sent events: what a page reads again and again, as one request that stays open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Final

import msgspec
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gpusched.web.feed import Feed
from gpusched.web.source import error_of

__all__ = ["AGAIN", "ALIVE", "Streamed", "Streams", "event_of", "feed_events", "merged", "read_events"]

_MOST: Final = 100
_EVERY_S: Final = 1.0
_QUIET: Final = 15
"""After that many readings without news an empty line is sent, so that a page that left in silence is noticed."""

ALIVE: Final = b": \n\n"
AGAIN: Final = b"{}"
"""What a page gets that has missed something: it asks for the whole moment."""

_READERS: Final = ThreadPoolExecutor(32, "reader")
"""Theirs alone: with a daemon that hangs all of them wait, and the status and the metrics must not."""

Reader = Callable[[], tuple[dict[str, object], bool]]
"""Reads what is new, as fields with a value each, none if nothing is; and whether that is all that there will be."""


class Streams:
    """The streams that are open, of which there are 100 at the most."""

    def __init__(self) -> None:
        self._open = 0

    async def answer(
        self, events: AsyncGenerator[bytes], close: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        """Answer with a stream of these events, or refuse it where there are too many; `close` ends their source."""
        close = close or events.aclose
        if self._open >= _MOST:
            await close()
            return PlainTextResponse("Too many pages are open.", 503)
        headers = {"X-Accel-Buffering": "no"}  # else nginx keeps events until it has some kilobytes
        return Streamed(self._counted(events), close, headers=headers, media_type="text/event-stream")

    async def _counted(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        self._open += 1
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            self._open -= 1


class Streamed(StreamingResponse):
    """An answer in pieces; `close` is awaited at its end, also if the client has left before the first piece."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        close: Callable[[], Awaitable[None]],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        self._pieces, self._close = pieces, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            try:
                await self._pieces.aclose()
            finally:
                await self._close()


async def feed_events(feed: Feed, seen: int) -> AsyncGenerator[bytes]:
    """Yield what changed since the moment `seen`; an empty one where moments were missed in between."""
    async with aclosing(feed.changes(seen)) as changes:
        async for change in changes:
            if change is None:
                yield ALIVE
            elif change.number == seen + 1:
                yield event_of(change.changed)
            else:
                yield event_of(AGAIN)
            seen = seen if change is None else change.number


async def read_events(open_reader: Callable[[], Reader]) -> AsyncGenerator[bytes]:
    """Yield what is new to a reader each second, and `over` with the last.

    An error is the last one, too: it is what the page shows.
    """
    read: Reader | None = None
    quiet = 0
    while True:
        try:
            if read is None:
                read = await asyncio.get_running_loop().run_in_executor(_READERS, open_reader)
            news, over = await asyncio.get_running_loop().run_in_executor(_READERS, read)
            event = event_of(msgspec.json.encode(news | {"over": over}))
        except Exception as error:  # noqa: BLE001 (no traceback reaches a page)
            yield event_of(msgspec.json.encode(error_of(error) | {"over": True}))
            return
        quiet = 0 if news else quiet + 1
        if news or over:
            yield event
        elif quiet % _QUIET == 0:
            yield ALIVE
        if over:
            return
        await asyncio.sleep(_EVERY_S)


async def merged(streams: Sequence[AsyncGenerator[bytes]]) -> AsyncGenerator[bytes]:
    """Yield what all the streams yield, as it comes, until one of them ends. They go no further than they are read."""
    events = asyncio.Queue[bytes](1)

    async def take(stream: AsyncGenerator[bytes]) -> None:
        async with aclosing(stream):
            async for event in stream:
                await events.put(event)

    tasks = [asyncio.create_task(take(stream)) for stream in streams]
    getting = asyncio.create_task(events.get())
    try:
        while True:
            await asyncio.wait([getting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():  # a stream has ended: the whole ends, too, and the page asks again
                for task in tasks:
                    if task.done():
                        task.result()
                return
            yield getting.result()
            getting = asyncio.create_task(events.get())
    finally:
        getting.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(getting, *tasks, return_exceptions=True)


def event_of(content: bytes, host: str | None = None) -> bytes:
    """Return an event with that content; `host`: of that other host."""
    return (b"" if host is None else f"event: at-{host}\n".encode()) + b"data: " + content + b"\n\n"
