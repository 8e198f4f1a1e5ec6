"""One reading for all who watch; few while no page is open; a reading that fails is shown, and the next is tried."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gpusched.api.host import Status
from gpusched.errors import HostFault
from gpusched.model.device import Device, Inventory
from gpusched.web.changes import Change
from gpusched.web.feed import Feed
from gpusched.web.source import Source
from tests.patience import PATIENCE_S

EVERY_S = 0.001


class Host:
    """Counts how often it is read; `busy` is what its device shows. It raises what is in `faults` first."""

    def __init__(self, *faults: Exception) -> None:
        self.readings, self.busy, self._faults = 0, 0, list(faults)
        self.kept: list[bool] = []

    def source(self) -> Source:
        return Source(lambda: self.read)

    def read(self, kept: Status | None = None) -> Status:
        """`kept`: as in StatusReader."""
        self.readings += 1
        self.kept.append(kept is not None)
        if self._faults:
            raise self._faults.pop(0)
        device = Device(index=0, uuid="GPU-a", name="V100", utilization_percent=self.busy)
        inventory = Inventory(host="lab", source="nvml", devices=(device,), cpus=(0,))
        return Status(inventory=inventory, jobs=(), leases=(), holders={}, time=1.0)


Moments = AsyncGenerator[Change | None]


async def next_of(moments: Moments) -> Any:
    """The next change. It is no whole moment: a page that sleeps keeps it."""
    found = await asyncio.wait_for(anext(moments), PATIENCE_S)
    assert found is not None, "a change"
    assert not hasattr(found, "whole")
    return json.loads(found.changed)


async def busy_of(moments: Moments, busy: int) -> None:
    while (await next_of(moments))["devices"][0]["busy"] != busy:
        pass


def test_all_see_each_change_and_who_comes_later_the_moment_of_now() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), EVERY_S)
        async with aclosing(feed.changes(0)) as one, aclosing(feed.changes(0)) as other:
            await busy_of(one, 0)
            host.busy = 7
            await busy_of(one, 7)
            await busy_of(other, 7)
            async with aclosing(feed.changes(0)) as late:
                assert (await next_of(late))["devices"][0]["busy"] == 7

    asyncio.run(watch())


def test_who_has_a_moment_gets_the_next_one_and_not_the_same_again() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), EVERY_S)
        has = await feed.latest()
        async with aclosing(feed.changes(has.number)) as moments:
            waiting = asyncio.ensure_future(anext(moments))
            readings = host.readings
            while host.readings < readings + 5:  # noqa: ASYNC110 (it counts)
                await asyncio.sleep(EVERY_S)
            assert not waiting.done(), "nothing has changed"
            host.busy = 3
            found = await asyncio.wait_for(waiting, PATIENCE_S)
            assert found is not None
            assert found.number == has.number + 1
            assert json.loads(found.changed)["devices"][0]["busy"] == 3

    asyncio.run(watch())


def test_while_no_page_is_open_it_reads_seldom_and_then_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), EVERY_S)
        monkeypatch.setattr("gpusched.web.feed.EVERY_S", EVERY_S)
        feed.start()
        while host.readings < 5:  # noqa: ASYNC110 (it counts)
            await asyncio.sleep(EVERY_S)
        monkeypatch.setattr("gpusched.web.feed.EVERY_S", 10 * PATIENCE_S)
        async with aclosing(feed.changes(0)) as one:
            await next_of(one)
        readings = host.readings + 1  # one may have begun
        await asyncio.sleep(20 * EVERY_S)
        assert host.readings <= readings
        host.busy = 9
        async with asyncio.timeout(PATIENCE_S):
            while json.loads((await feed.latest()).whole)["devices"][0]["busy"] != 9:  # noqa: ASYNC110 (a reading may have begun before)
                await asyncio.sleep(EVERY_S)

    asyncio.run(watch())


def test_many_that_ask_for_the_whole_share_a_reading() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), every_s=PATIENCE_S)
        found = await asyncio.gather(*(feed.latest() for _ in range(50)))
        assert {moment.number for moment in found} == {1}
        assert host.readings < 50
        readings = host.readings
        await feed.latest()
        assert host.readings == readings

    asyncio.run(watch())


def test_a_reading_that_fails_is_shown_and_the_next_is_tried() -> None:
    async def watch() -> None:
        host = Host(HostFault("the driver is gone", "load it"), ValueError("odd"))
        async with aclosing(Feed(host.source(), EVERY_S).changes(0)) as moments:
            first = await next_of(moments)
            assert (first["error"], first["hint"]) == ("the driver is gone", "load it")
            assert "internal error: ValueError: odd" in (await next_of(moments))["error"]
            await busy_of(moments, 0)

    asyncio.run(watch())


def test_soon_after_the_queue_has_changed_it_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCHED_STATE_DIR", str(tmp_path))

    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), every_s=10 * PATIENCE_S)
        async with aclosing(feed.changes(0)) as moments:
            await next_of(moments)
            host.busy = 5
            (tmp_path / "gpusched.db-wal").write_bytes(b"a change")
            await busy_of(moments, 5)
            assert host.kept == [False, True], "the devices are not read again"

    asyncio.run(watch())


def test_a_stream_without_a_change_is_heard_of_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.web.feed._ALIVE_S", 5 * EVERY_S)

    async def watch() -> None:
        feed = Feed(Host().source(), EVERY_S)
        async with aclosing(feed.changes((await feed.latest()).number)) as moments:
            assert await asyncio.wait_for(anext(moments), PATIENCE_S) is None
            assert await asyncio.wait_for(anext(moments), PATIENCE_S) is None

    asyncio.run(watch())


def test_who_comes_and_goes_again_and_again_leaves_no_reading_behind() -> None:
    async def watch() -> None:
        host = Host()
        feed = Feed(host.source(), EVERY_S)
        for _ in range(200):
            async with aclosing(feed.changes(0)) as one:
                await next_of(one)
        assert len(asyncio.all_tasks()) == 2, "this one, and the one that reads"
        assert host.readings < 2000

    asyncio.run(watch())
