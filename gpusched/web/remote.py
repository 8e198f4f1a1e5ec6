"""Other hosts on the same page: `gpusched web --socket` there, reached through ssh; no port is opened on either side.

One ssh process for each host carries all requests to it (ssh -L of a socket in the file system). What comes back is
shown as what is from here: as data, never as a part of the page.
"""

import asyncio
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from gpusched.errors import UsageError
from gpusched.web.body import body_of
from gpusched.web.guard import KEY
from gpusched.web.listening import READY
from gpusched.web.streams import AGAIN, ALIVE, Streams, event_of

__all__ = ["Remote", "Target", "targets_of"]

_TARGET: Final = re.compile(
    r"(?P<name>[\w.-]{1,64})=ssh://(?P<host>(?:[\w.-]+@)?(?:\w[\w.-]*|\[[0-9a-fA-F:.]+\]))(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<program>/[^,]+)?(?P<watched>,read-only)?",
    re.ASCII,
)
_OPTIONS: Final = (
    *("-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-o", "StreamLocalBindUnlink=yes"),
)
_RETRY_S: Final = (2.0, 5.0, 10.0, 30.0)
_ANSWER_S: Final = 60.0
_ALIVE_S: Final = 15.0
_MOST_COMPLAINT: Final = 300
_KINDS: Final = re.compile(
    r"(application/(json|octet-stream)|text/(event-stream|plain)|image/(png|jpeg|gif|webp))(;.*)?"
)
"""What another host may send. A script or a page of it would run here, as if it were this server's."""


class Target(NamedTuple):
    """A host as typed: its `name` on the page, where ssh goes, the program there; `read_only`: it is not acted on."""

    name: str
    host: str
    port: int | None = None
    program: str = "gpusched"
    read_only: bool = False


def targets_of(typed: Sequence[str]) -> list[Target]:
    """Return the hosts in words as _target_of takes. Raises UsageError for such a word, and for two of one name."""
    found = [_target_of(one) for one in typed]
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--host: two hosts are called {twice[0]}", "give each a name of its own")
    return found


def _target_of(typed: str) -> Target:
    """Return the host in `lab2=ssh://[USER@]HOST[:PORT][/path/to/gpusched][,read-only]`. Raises UsageError."""
    found = _TARGET.fullmatch(typed)
    if found is None:
        raise UsageError(
            f"--host: {typed!r} names no host",
            "such as lab2=ssh://lab2, or lab2=ssh://me@lab2:22/home/me/.local/bin/gpusched,read-only",
        )
    port = None if found["port"] is None else int(found["port"])
    return Target(found["name"], found["host"], port, found["program"] or "gpusched", found["watched"] is not None)


class _Away(NamedTuple):
    since: float
    why: str


class Remote:
    """One other host: it is connected to again and again, for as long as this server runs."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._away: _Away | None = _Away(time.time(), "it was not reached yet")
        self._changed = asyncio.Condition()
        self._folder = tempfile.TemporaryDirectory(prefix="gpusched-web-")
        self._socket = str(Path(self._folder.name) / "socket")
        transport = httpx.AsyncHTTPTransport(uds=self._socket, limits=httpx.Limits(max_connections=None))
        timeout = httpx.Timeout(_ANSWER_S)  # a stream is never quiet for as long
        self._client = httpx.AsyncClient(transport=transport, base_url="http://gpusched", timeout=timeout)

    @property
    def view(self) -> dict[str, object]:
        """What the page has of it before it is asked."""
        return {"name": self.target.name, "read_only": self.target.read_only}

    async def connect(self) -> None:
        """Connect again and again, until this task is cancelled."""
        tries = 1
        try:
            while True:
                began = time.monotonic()
                why = await self._connected()
                tries = 1 if time.monotonic() - began > _RETRY_S[-1] else tries + 1
                await self._set_away(_Away(time.time() if self._away is None else self._away.since, why))
                await asyncio.sleep(_RETRY_S[min(tries, len(_RETRY_S)) - 1])
        finally:
            await self._client.aclose()
            self._folder.cleanup()

    async def _connected(self) -> str:
        """Run ssh until it ends; return what it complained of last."""
        there = f"/tmp/gpusched-web-{secrets.token_hex(16)}"  # noqa: S108 (it is 0600, and no request goes there before READY)
        port = () if self.target.port is None else ("-p", str(self.target.port))
        remote = f"exec {shlex.quote(self.target.program)} web --socket {there}"
        argv = ["ssh", *_OPTIONS, *port, "-L", f"{self._socket}:{there}", "--", self.target.host, remote]
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            return f"ssh cannot be run: {error.strerror}"
        assert process.stdout is not None  # noqa: S101 (for the type checker)
        assert process.stderr is not None  # noqa: S101
        complaint = asyncio.create_task(_last_line(process.stderr))
        try:
            async for line in process.stdout:
                if line.strip() == READY.encode():
                    await self._set_away(None)
            await process.wait()
        except ValueError:  # a line of more than 64 KiB
            return "what ssh wrote is not understood"
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        return await complaint or f"ssh ended with code {process.returncode}"

    async def _set_away(self, away: _Away | None) -> None:
        async with self._changed:
            self._away = away
            self._changed.notify_all()

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what changes there, as events with the name of the host; `away` while it cannot be reached."""
        name = self.target.name
        while True:
            away = self._away
            if away is None:
                yield event_of(AGAIN, name)
                with suppress(httpx.HTTPError):
                    async with self._client.stream("GET", "/events") as answer:
                        async for line in answer.aiter_lines():
                            kind, _, content = line.partition(": ")
                            yield event_of(content.encode(), name) if kind == "data" else ALIVE
                await asyncio.sleep(_RETRY_S[0])  # it goes away, or had no room for a stream
                continue
            yield event_of(msgspec.json.encode({"away": away._asdict()}), name)
            while self._away is away:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ALIVE_S), self._changed:
                        await self._changed.wait()
                yield ALIVE

    async def answer(self, request: Request, streams: Streams) -> Response:
        """Pass a request on, and its answer back."""
        name, away = self.target.name, self._away
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
            return streams.answer(_content(found))
        headers = {name: found.headers[name] for name in ("content-encoding",) if name in found.headers}
        if kind == "application/octet-stream":
            headers["Content-Disposition"] = "attachment"
        return StreamingResponse(_content(found), found.status_code, headers, media_type=kind)


async def _content(found: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        with suppress(httpx.HTTPError):  # it went away; the page asks again
            async for part in found.aiter_raw():
                yield part
    finally:
        await found.aclose()


async def _last_line(stream: asyncio.StreamReader) -> str:
    """Return the last line of what ssh writes, once that has ended."""
    last = ""
    with suppress(ValueError):  # a line of more than 64 KiB
        async for line in stream:
            last = line.decode(errors="replace").strip() or last
    return last[:_MOST_COMPLAINT]
