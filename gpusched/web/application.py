"""The server's application: what each request must pass before it gets an answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusched.errors import GpuschedError
from gpusched.web.answers import failed, routes
from gpusched.web.feed import Feed
from gpusched.web.guard import HEADERS, Asked, Denied, Logins, denied

__all__ = ["application"]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def application(logins: Logins, port: int, *, feed: Feed | None = None) -> ASGIApp:
    """Return the server's application for loopback at `port`. `feed`: where the page's moments are from."""
    names = frozenset(f"{host}:{port}" for host in _LOOPBACK)
    found = feed or Feed()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        found.start()
        yield

    inner = Starlette(routes=routes(found), exception_handlers={GpuschedError: failed}, lifespan=lifespan)
    return _Guarded(inner, logins, names, f"gpusched_{port}")


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
        hosts, origins, kinds = (headers.getlist(name) for name in ("host", "origin", "content-type"))
        refused = denied(Asked(scope["method"], scope["path"], hosts, origins, kinds), self._names)
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
