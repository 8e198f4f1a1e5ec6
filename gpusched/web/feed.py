"""What the page shows, read once for all who watch it, and seldom while none does."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from gpusched.web.changes import Change, Moment
from gpusched.web.history import EVERY_S
from gpusched.web.source import Source

__all__ = ["Feed"]

_EVERY_S: Final = 1.0
_STEP_S: Final = 0.05
_PART_DEVICES: Final = 0.1
_PART_JOBS: Final = 0.2
"""The parts of the time that reading devices, and reading jobs soon after a change of the queue, may take."""

_ALIVE_S: Final = 15.0
"""How long a stream waits for a change. Then it gets an empty line, so that a page that left in silence is noticed."""


class Feed:
    """The moments of a host: while a stream is open each second, and soon after the queue has changed.

    While none is open it reads each half minute, so that a page that is opened then has the hour before. Where
    readings take long, as on a host with very many devices or jobs, there are fewer of them. A reader that is
    slow misses moments, which their numbers show, and asks for the whole. So nothing is kept for it.
    """

    def __init__(self, source: Source, every_s: float = _EVERY_S) -> None:
        self._source, self._every_s = source, every_s
        self._moment: Moment | None = None
        self._fresh = 0.0
        self._changed = asyncio.Condition()
        self._reading = asyncio.Lock()
        self._watching = 0
        self._watched = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, if that has not begun. Raises RuntimeError where no event loop runs."""
        if self._task is None:
            self._task = asyncio.create_task(self._read_on())

    async def history(self) -> dict[str, object]:
        """Return how busy the devices were, as History.view does."""
        async with self._reading:
            return self._source.history()

    async def latest(self) -> Moment:
        """Return the moment of now, read at most a second ago."""
        async with self._reading:  # who waits for a reading has its result
            while self._moment is None or time.monotonic() - self._fresh > self._every_s:
                await self._read()
            return self._moment

    async def changes(self, seen: int) -> AsyncGenerator[Change | None]:
        """Yield the change of now, unless its number is `seen`, and then each one; None after 15 s without."""
        self.start()
        self._watching += 1
        self._watched.set()
        try:
            while True:
                found = await self._after(seen)
                seen = seen if found is None else found.number
                yield found
        finally:
            self._watching -= 1
            if not self._watching:
                self._watched.clear()

    async def _after(self, seen: int) -> Change | None:
        """Return a change, and not its moment: a page that sleeps keeps what it was given last."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALIVE_S), self._changed:
                while self._moment is None or self._moment.number == seen:
                    await self._changed.wait()
                return Change(self._moment.number, self._moment.changed)
        return None

    async def _read_on(self) -> None:
        """Read again and again. NVML and the daemon answer in another thread."""
        while True:
            began = time.monotonic()
            async with self._reading:
                took = await self._read()
            await self._follow_queue(began + max(self._every_s, took / _PART_DEVICES))
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._watched.wait()

    async def _follow_queue(self, until: float) -> None:
        """Read the jobs soon after each change of the queue, until the next reading of all."""
        soonest = 0.0
        while self._watching and (now := time.monotonic()) < until:
            if now >= soonest and self._source.queue_has_changed():
                async with self._reading:
                    took = await self._read(jobs_alone=True)
                soonest = time.monotonic() + took * (1 / _PART_JOBS - 1)
            await asyncio.sleep(min(_STEP_S, self._every_s))

    async def _read(self, *, jobs_alone: bool = False) -> float:
        """Read once; return how many seconds that took."""
        began = time.monotonic()
        found = await asyncio.to_thread(self._source.moment, jobs_alone=jobs_alone)
        self._fresh = time.monotonic()
        if found is not None:
            async with self._changed:
                self._moment = found
                self._changed.notify_all()
        return self._fresh - began
