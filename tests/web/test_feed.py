"""One reading for all who watch; none while no page is open; a reading that fails is shown, and the next is tried."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from gpusched.api.host import Status
from gpusched.errors import HostFault
from gpusched.model.device import Device, Inventory
from gpusched.web.feed import Feed
from tests.patience import PATIENCE_S

EVERY_S = 0.001


class Host:
    """Counts how often it is read; `busy` is what its device shows. It raises what is in `faults` first."""

    def __init__(self, *faults: Exception) -> None:
        self.readings, self.busy, self._faults = 0, 0, list(faults)

    def reader(self) -> Callable[[], Status]:
        return self.read

    def read(self) -> Status:
        self.readings += 1
        if self._faults:
            raise self._faults.pop(0)
        device = Device(index=0, uuid="GPU-a", name="V100", utilization_percent=self.busy)
        inventory = Inventory(host="lab", source="nvml", devices=(device,), cpus=(0,))
        return Status(inventory=inventory, jobs=(), leases=(), holders={}, time=1.0)


async def next_of(moments: AsyncGenerator[bytes]) -> Any:
    return json.loads(await asyncio.wait_for(anext(moments), PATIENCE_S))


async def busy_of(moments: AsyncGenerator[bytes], busy: int) -> None:
    while (await next_of(moments))["devices"][0]["busy"] != busy:
        pass


async def others_end() -> None:
    """Wait for the end of what reads: nobody watches any more."""
    await asyncio.wait_for(asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}), PATIENCE_S)


def test_all_see_each_change_and_who_comes_later_the_moment_of_now() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.reader, EVERY_S)
        async with aclosing(feed.moments()) as one, aclosing(feed.moments()) as other:
            await busy_of(one, 0)
            host.busy = 7
            await busy_of(one, 7)
            await busy_of(other, 7)
            async with aclosing(feed.moments()) as late:
                assert (await next_of(late))["devices"][0]["busy"] == 7

    asyncio.run(watch())


def test_while_nobody_watches_nothing_is_read_and_then_it_goes_on() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.reader, EVERY_S)
        async with aclosing(feed.moments()) as one:
            await next_of(one)
        await others_end()
        readings = host.readings
        await asyncio.sleep(20 * EVERY_S)
        assert host.readings == readings
        host.busy = 9
        async with aclosing(feed.moments()) as again:
            assert (await next_of(again))["devices"][0]["busy"] == 9, "not what was seen long ago"

    asyncio.run(watch())


def test_a_reading_that_fails_is_shown_and_the_next_is_tried() -> None:
    async def watch() -> None:
        host = Host(HostFault("the driver is gone", "load it"), ValueError("odd"))
        async with aclosing(Feed(host.reader, EVERY_S).moments()) as moments:
            assert await next_of(moments) == {"error": "the driver is gone", "hint": "load it"}
            assert "internal error: ValueError: odd" in (await next_of(moments))["error"]
            await busy_of(moments, 0)

    asyncio.run(watch())


def test_what_stays_as_it_is_is_sent_again_now_and_then() -> None:
    async def watch() -> None:
        host = Host()
        async with aclosing(Feed(host.reader, EVERY_S).moments()) as moments:
            first = await next_of(moments)
            assert await next_of(moments) == first
            assert host.readings > 10

    asyncio.run(watch())


def test_who_comes_and_goes_again_and_again_leaves_no_reading_behind() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.reader, EVERY_S)
        for _ in range(200):
            async with aclosing(feed.moments()) as one:
                await next_of(one)
        await others_end()
        assert host.readings < 2000

    asyncio.run(watch())
