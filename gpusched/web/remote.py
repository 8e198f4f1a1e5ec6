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
_MOST_EVENT: Final = 16 << 20
_KINDS: Final = re.compile(
    r"(application/(json|octet-stream)|text/(event-stream|plain)|image/(png|jpeg|gif|webp))(;.*)?"
)
"""What another host may send. A script or a page of it would run here, as if it were this server's."""


class Remote:
    """One other host."""

    def __init__(self, target: Target) -> None:
        self.target, self._tunnel = target, Tunnel(target)
        transport = httpx.AsyncHTTPTransport(uds=str(self._tunnel.socket), limits=httpx.Limits(max_connections=None))
        timeout = httpx.Timeout(_ANSWER_S)  # a stream is never quiet for as long
        self._client = httpx.AsyncClient(transport=transport, base_url="http://gpusched", timeout=timeout)

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
                with suppress(httpx.HTTPError, ValueError):
                    async with self._client.stream("GET", "/events") as answer:
                        async for line in _lines(answer):
                            yield event_of(_data(line), name) if line.startswith(b"data: ") else ALIVE
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
        headers = {"Accept-Encoding": request.headers.get("accept-encoding", "identity")}
        if request.method == "POST":
            if self.target.read_only:
                return JSONResponse({"error": f"{name} is shown, and not acted on", "hint": "without read-only"}, 403)
            headers |= {"Origin": str(self._client.base_url).rstrip("/"), "Content-Type": "application/json"}
        query = httpx.QueryParams([one for one in request.query_params.multi_items() if one[0] not in ("host", KEY)])
        asked = self._client.build_request(
            request.method, request.url.path, params=query, content=await body_of(request), headers=headers
        )
        try:
            found = await self._client.send(asked, stream=True)
        except httpx.HTTPError as error:
            return JSONResponse({"error": f"{name} does not answer: {error}", "hint": ""}, 502)
        return await self._passed(found, streams)

    async def _passed(self, found: httpx.Response, streams: Streams) -> Response:
        kind = found.headers.get("content-type", "")
        if not _KINDS.fullmatch(kind):
            await found.aclose()
            return JSONResponse({"error": f"{self.target.name} sent what is not shown: {kind}", "hint": ""}, 502)
        if kind.startswith("text/event-stream"):
            return await streams.answer(_content(found), found.aclose)
        headers = {name: found.headers[name] for name in ("content-encoding",) if name in found.headers}
        if kind == "application/octet-stream":
            headers["Content-Disposition"] = "attachment"
        return Streamed(_content(found), found.aclose, found.status_code, headers, kind)


async def _content(found: httpx.Response) -> AsyncGenerator[bytes]:
    with suppress(httpx.HTTPError):  # it went away; the page asks again
        async for part in found.aiter_raw():
            yield part


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a stream of events. Raises ValueError for what is none, and for a line of over 16 MiB."""
    if answer.status_code != httpx.codes.OK or not answer.headers.get("content-type", "").startswith(
        "text/event-stream"
    ):
        raise ValueError("no stream of events")
    rest = bytearray()
    async for part in answer.aiter_bytes():
        *lines, last = part.split(b"\n")
        for line in lines:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > _MOST_EVENT:
            raise ValueError("an event is too long")


def _data(line: bytes) -> bytes:
    """Return the content of an event as JSON in one line, which can end no event. Raises ValueError."""
    return msgspec.json.encode(msgspec.json.decode(line.removeprefix(b"data: ")))
