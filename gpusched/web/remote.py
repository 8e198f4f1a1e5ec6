"""Other hosts on the same page. What comes back is shown as what is from here: as data, never as a part of the page."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gpusched.web.body import body_of
from gpusched.web.guard import KEY
from gpusched.web.streams import AGAIN, ALIVE, Streamed, Streams, event_of
from gpusched.web.tunnel import Target, Tunnel

__all__ = ["Remote"]

_RETRY_S: Final = 2.0
_ANSWER_S: Final = 60.0
_ALIVE_S: Final = 15.0
_LEAST_S: Final = 0.02
"""Between two events of one host: one that sends without end must not keep this server busy."""

_MOST_EVENT: Final = 16 << 20
_MOST_CONTENT: Final = 65 << 20
_MOST_CONNECTIONS: Final = 200
_KEPT_ALIVE_S: Final = 2.0
"""Shorter than the server there keeps a connection, so that no request meets its end."""

_KINDS: Final = re.compile(
    r"(application/(json|octet-stream)|text/(event-stream|plain)|image/(png|jpeg|gif|webp))(;[ -~]*)?"
)
"""What another host may send. A script or a page of it would run here, as if it were this server's."""


class Remote:
    """One other host."""

    def __init__(self, target: Target) -> None:
        self.target, self._tunnel = target, Tunnel(target)
        limits = httpx.Limits(max_connections=_MOST_CONNECTIONS, keepalive_expiry=_KEPT_ALIVE_S)
        transport = httpx.AsyncHTTPTransport(uds=str(self._tunnel.socket), limits=limits)
        timeout = httpx.Timeout(_ANSWER_S)  # a stream is never quiet for as long
        plain = {"Accept-Encoding": "identity"}  # what is packed can be of any size; ssh packs
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://gpusched", timeout=timeout, headers=plain
        )

    @property
    def view(self) -> dict[str, object]:
        """What the page has of it before it is asked."""
        return {"name": self.target.name, "read_only": self.target.read_only}

    async def connect(self) -> None:
        """Connect again and again, until this task is cancelled."""
        try:
            await self._tunnel.keep()
        finally:
            await self._client.aclose()

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what changes there, as events with the name of the host; `away` while it cannot be reached."""
        name = self.target.name
        while True:
            away = self._tunnel.away
            if away is None:
                yield event_of(AGAIN, name)
                with suppress(Exception):  # whatever is wrong with one host, the others' events are in the same stream
                    async with self._client.stream("GET", "/events") as answer:
                        async for line in _lines(answer):
                            if line.startswith(b"data: "):
                                yield event_of(_data(line), name)
                                await asyncio.sleep(_LEAST_S)
                await asyncio.sleep(_RETRY_S)  # it goes away, had no room for a stream, or sent what is none
                continue
            yield event_of(msgspec.json.encode({"away": away._asdict()}), name)
            while self._tunnel.away is away:
                await self._tunnel.change(away, _ALIVE_S)
                yield ALIVE

    async def answer(self, request: Request, streams: Streams) -> Response:
        """Pass a request on, and its answer back."""
        name, away = self.target.name, self._tunnel.away
        if away is not None:
            return JSONResponse({"error": f"{name} is away: {away.why}", "hint": ""}, 503)
        headers = None
        if request.method == "POST":
            if self.target.read_only:
                return JSONResponse({"error": f"{name} is shown, and not acted on", "hint": "without read-only"}, 403)
            headers = {"Origin": str(self._client.base_url).rstrip("/"), "Content-Type": "application/json"}
        query = httpx.QueryParams([one for one in request.query_params.multi_items() if one[0] not in ("host", KEY)])
        asked = self._client.build_request(
            request.method, request.url.path, params=query, content=await body_of(request), headers=headers
        )
        try:
            found = await self._client.send(asked, stream=True)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            return JSONResponse({"error": f"{name} does not answer: {why}", "hint": ""}, 502)
        return await self._passed(found, streams)

    async def _passed(self, found: httpx.Response, streams: Streams) -> Response:
        kind = found.headers.get("content-type", "")
        if not _KINDS.fullmatch(kind) or "content-encoding" in found.headers:
            await found.aclose()
            return JSONResponse({"error": f"{self.target.name} sent what is not shown: {kind}", "hint": ""}, 502)
        if kind.startswith("text/event-stream"):
            return await streams.answer(_events(found), found.aclose)
        headers = {"Content-Disposition": "attachment"} if kind == "application/octet-stream" else {}
        return Streamed(_content(found), found.aclose, found.status_code, headers, kind)


async def _events(found: httpx.Response) -> AsyncGenerator[bytes]:
    with suppress(httpx.HTTPError):  # it went away; the page asks again
        async for part in found.aiter_raw():
            yield part


async def _content(found: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield what was sent. Raises httpx.HTTPError where that ends too soon: the browser must not take it for all."""
    size = 0
    async for part in found.aiter_raw():
        size += len(part)
        if size > _MOST_CONTENT:
            raise httpx.ReadError("too much was sent")
        yield part


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a stream of events. Raises ValueError for what is none, and for a line of over 16 MiB."""
    kind = answer.headers.get("content-type", "")
    if answer.status_code != httpx.codes.OK or not kind.startswith("text/event-stream"):
        raise ValueError("no stream of events")
    rest = bytearray()
    async for part in answer.aiter_raw():
        *lines, last = part.split(b"\n")
        for line in lines:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > _MOST_EVENT:
            raise ValueError("an event is too long")


def _data(line: bytes) -> bytes:
    """Return the content of an event as JSON in one line, which can end no event. Raises ValueError.

    `away` is what this server has to report of a host, and no host of itself.
    """
    found = msgspec.json.decode(line.removeprefix(b"data: "), type=dict[str, object])
    return msgspec.json.encode({name: value for name, value in found.items() if name != "away"})
