"""Streams that are refused, left or broken: what they are of is closed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.responses import Response

from gpusched.web.streams import Streams, merged


async def endless() -> AsyncGenerator[bytes]:
    while True:
        yield b": \n\n"
        await asyncio.sleep(0.01)


async def ask(answer: Response, leave: asyncio.Event, begun: asyncio.Event) -> None:
    """Read an answer until `leave`, as one who then has gone; `begun`: a piece of it was read."""

    async def receive() -> dict[str, Any]:
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        if message.get("body"):
            begun.set()

    await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)


class Source:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_a_stream_too_many_is_refused_and_what_it_is_of_is_closed() -> None:
    async def check() -> None:
        streams, source, leave = Streams(), Source(), asyncio.Event()
        opened = [(await streams.answer(endless(), source.close), asyncio.Event()) for _ in range(100)]
        async with asyncio.TaskGroup() as group:
            for answer, begun in opened:
                group.create_task(ask(answer, leave, begun))
            for _, begun in opened:
                await begun.wait()
            refused = await streams.answer(endless(), source.close)
            assert (refused.status_code, source.closed) == (503, 1)
            leave.set()
        assert source.closed == 101
        assert (await streams.answer(endless(), source.close)).status_code == 200, "there is room again"

    asyncio.run(check())


def test_what_a_stream_is_of_is_closed_where_its_reader_had_gone_before() -> None:
    async def check() -> None:
        source, gone = Source(), asyncio.Event()
        gone.set()
        await ask(await Streams().answer(endless(), source.close), gone, asyncio.Event())
        assert source.closed == 1

    asyncio.run(check())


async def failing() -> AsyncGenerator[bytes]:
    yield b"one"
    raise RuntimeError("it broke")


def test_merged_streams_end_with_what_broke_one_of_them() -> None:
    async def read() -> None:
        async for _ in merged([endless(), failing()]):
            pass

    with pytest.raises(RuntimeError, match="it broke"):
        asyncio.run(read())
