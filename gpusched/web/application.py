"""The routes of the page, and what each request must pass before one of them is asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusched.api.metrics import Metrics, metrics_reader
from gpusched.errors import GpuschedError
from gpusched.web.feed import Feed
from gpusched.web.guard import HEADERS, Denied, Logins, denied

__all__ = ["application"]

_FILES: Final[Mapping[str, str]] = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""All that the page consists of. No path of a request reaches the file system: these are read once, by name."""

_MOST_STREAMS: Final = 100


def application(logins: Logins, port: int, *, feed: Feed | None = None) -> ASGIApp:
    """Return the server's application for loopback at `port`. `feed`: where the page's moments are from."""
    names = frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]"))
    page = _Page(feed or Feed())
    routes = [
        Route("/", page.file("page.html")),
        *(Route(f"/{name}", page.file(name)) for name in _FILES if name != "page.html"),
        Route("/events", page.events),
        Route("/metrics", page.metrics),
    ]
    return _Guarded(Starlette(routes=routes), logins, names, f"gpusched_{port}")


class _Page:
    def __init__(self, feed: Feed) -> None:
        self._feed, self._streams = feed, 0
        static = files("gpusched.web") / "static"
        self._content = {name: (static / name).read_bytes() for name in _FILES}
        self._metrics_lock = asyncio.Lock()
        self._read: Callable[[], Metrics] | None = None

    def file(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the answer with that file."""

        async def answer(_: Request) -> Response:
            return Response(self._content[name], media_type=_FILES[name])

        return answer

    async def events(self, _: Request) -> Response:
        """Answer with a stream of moments (server-sent events)."""
        if self._streams >= _MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.", 503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def metrics(self, _: Request) -> Response:
        """Answer with the numbers for Prometheus."""
        async with self._metrics_lock:  # one reading at a time
            try:
                if self._read is None:
                    self._read = await asyncio.to_thread(metrics_reader)
                found = await asyncio.to_thread(self._read)
            except GpuschedError as error:
                return PlainTextResponse(f"{error.message}\n", 503)
        return Response(found.text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _stream(self) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async with aclosing(self._feed.moments()) as moments:
                async for moment in moments:
                    yield b"data: " + moment + b"\n\n"
        finally:
            self._streams -= 1


class _Guarded:
    """Lets a request through that may be answered, and puts the headers on each answer."""

    def __init__(self, inner: ASGIApp, logins: Logins, names: frozenset[str], cookie: str) -> None:
        self._inner, self._logins, self._names, self._cookie = inner, logins, names, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(scope)
        await (answer or self._inner)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to who may not go on, and to a login; None for who may."""
        request, headers = Request(scope), Headers(scope=scope)
        refused = denied(scope["method"], headers.getlist("host"), self._names)
        secret = QueryParams(scope["query_string"]).get("token")
        if refused is None and secret is not None:
            return self._log_in(secret)
        if refused is None and not self._is_known(request):
            refused = Denied(401, "Open the address that `gpusched web` has printed: it is good for one login.")
        return None if refused is None else PlainTextResponse(f"{refused.text}\n", refused.status)

    def _is_known(self, request: Request) -> bool:
        if request.url.path == "/metrics" and self._logins.may_read_metrics(request.headers.get("authorization")):
            return True
        return self._logins.is_in(request.cookies.get(self._cookie))

    def _log_in(self, secret: str) -> Response:
        session = self._logins.log_in(secret)
        if session is None:
            return PlainTextResponse("This address was used before: `gpusched web` has printed another one.\n", 401)
        answer = RedirectResponse("/", 303)  # the secret leaves the address
        answer.set_cookie(self._cookie, session, httponly=True, samesite="strict", path="/")
        return answer
