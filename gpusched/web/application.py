"""The server's application: what each request must pass before it gets an answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusched.errors import GpuschedError
from gpusched.web.answers import EMPTY_PATHS, failed, routes
from gpusched.web.feed import Feed
from gpusched.web.guard import HEADERS, KEY, Asked, Denied, Logins, Site, denied

if TYPE_CHECKING:
    from gpusched.web.remote import Remote

__all__ = ["application"]


def application(site: Site, logins: Logins | None, feed: Feed, remotes: "Sequence[Remote]" = ()) -> ASGIApp:
    """Return the application of a server that is that site; logins None: who can reach it needs none.

    `feed`: where the page's moments of this host are from. `remotes`: other hosts on the same page.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        feed.start()
        tasks = [asyncio.create_task(remote.connect()) for remote in remotes]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    by_name = {remote.target.name: remote for remote in remotes}
    inner = Starlette(routes=routes(feed, by_name), exception_handlers={GpuschedError: failed}, lifespan=lifespan)
    return _Guarded(inner, site, logins)


class _Guarded:
    """Lets a request through that may be answered, and puts the headers on each answer."""

    def __init__(self, inner: ASGIApp, site: Site, logins: Logins | None) -> None:
        self._inner, self._site, self._logins = inner, site, logins

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
        refused = denied(Asked(scope["method"], scope["path"], hosts, origins, kinds), self._site)
        if refused is None and self._logins is not None:
            given = request.query_params
            if "token" in given and request.method == "GET":  # what asks for a preview sends HEAD
                return self._log_in(self._logins, given["token"], request)
            if not self._is_known(self._logins, request):
                refused = Denied(401, "Open the address that `gpusched web` has printed: it is good for one login.")
        return None if refused is None else PlainTextResponse(f"{refused.text}\n", refused.status)

    def _is_known(self, logins: Logins, request: Request) -> bool:
        path, cookie = request.url.path, request.cookies.get(self._site.cookie)
        if path == "/metrics" and logins.may_read_metrics(request.headers.get("authorization")):
            return True
        if path in EMPTY_PATHS:
            return logins.has_cookie(cookie)
        return logins.is_in(cookie, request.query_params.get(KEY))

    def _log_in(self, logins: Logins, secret: str, request: Request) -> Response:
        session = logins.log_in(secret)
        if session is None and logins.has_cookie(request.cookies.get(self._site.cookie)):
            return RedirectResponse("/", 303)  # it was opened before, and is in the history
        if session is None:
            return PlainTextResponse("This address was used before: `gpusched web` has printed another one.\n", 401)
        answer = RedirectResponse(f"/#{KEY}={session.key}", 303)  # what is behind # is sent to no server
        secure = self._site.is_secret
        answer.set_cookie(self._site.cookie, session.cookie, httponly=True, samesite="strict", path="/", secure=secure)
        return answer
