"""What the server answers to each route, once a request was let in."""

import asyncio
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

import gpusched
from gpusched.api.checks import doctor
from gpusched.api.metrics import Metrics, metrics_reader
from gpusched.errors import GpuschedError, NotFound
from gpusched.web.actions import Action, JobId, act
from gpusched.web.body import body_of
from gpusched.web.feed import Feed
from gpusched.web.guard import ACTIONS
from gpusched.web.job_view import JobReader, members_view, picture_type, usage_view
from gpusched.web.plan_view import choices, plan_view
from gpusched.web.source import error_of
from gpusched.web.streams import Streams, feed_events, merged, read_events

if TYPE_CHECKING:
    from gpusched.web.remote import Remote

__all__ = ["EMPTY_PATHS", "failed", "routes"]

_FILES: Final[Mapping[str, str]] = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "status.js": "text/javascript; charset=utf-8",
    "job.js": "text/javascript; charset=utf-8",
    "plan.js": "text/javascript; charset=utf-8",
    "doctor.js": "text/javascript; charset=utf-8",
    "uplot.js": "text/javascript; charset=utf-8",
    "uplot.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""All that the page consists of. No path of a request reaches the file system: these are read once, by name."""

EMPTY_PATHS: Final = frozenset({"/", *(f"/{name}" for name in _FILES)})
"""What shows nothing of the host."""

_MOST_DIGITS: Final = 15
_MOST_FILE: Final = 64 << 20
_PIECE: Final = 1 << 18
_LEAST_COMPRESSED: Final = 4096


def routes(feed: Feed, remotes: "Mapping[str, Remote]") -> list[BaseRoute]:
    """Return all routes of the server: what names another host goes there. `remotes`: other hosts by their names."""
    answers = _Answers(feed, remotes)
    return [
        _Elsewhere(answers.elsewhere),
        Route("/", answers.file("page.html")),
        *(Route(f"/{name}", answers.file(name)) for name in _FILES if name != "page.html"),
        Route("/moment", answers.moment),
        Route("/history", answers.history),
        Route("/hosts", answers.hosts),
        Route("/events", answers.events),
        Route("/job/events", answers.job_events),
        Route("/job/file", answers.job_file),
        Route("/job/members", answers.job_members),
        Route("/job/usage", answers.job_usage),
        Route("/choices", answers.choices),
        Route("/plan", answers.plan),
        Route("/doctor", answers.doctor),
        Route("/metrics", answers.metrics),
        Route(ACTIONS, answers.act, methods=["POST"]),
    ]


class _Elsewhere(Route):
    """Takes each request that names another host, but for events, which are of all hosts, and metrics, of this one."""

    def __init__(self, endpoint: Callable[[Request], Any]) -> None:
        super().__init__("/{path:path}", endpoint, methods=["GET", "POST"])

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether this route answers a request."""
        if scope["path"] in ("/events", "/metrics") or "host" not in QueryParams(scope["query_string"]):
            return Match.NONE, {}
        return super().matches(scope)


class _Answers:
    def __init__(self, feed: Feed, remotes: "Mapping[str, Remote]") -> None:
        self._feed, self._remotes, self._streams = feed, remotes, Streams()
        static = files("gpusched.web") / "static"
        self._content = {name: (static / name).read_bytes() for name in _FILES}
        self._metrics = asyncio.Lock()
        self._working = asyncio.Lock()
        self._read: Callable[[], Metrics] | None = None

    def file(self, name: str) -> Callable[[Request], Any]:
        """Return the answer with that file."""

        async def answer(_: Request) -> Response:
            return Response(self._content[name], media_type=_FILES[name])

        return answer

    async def moment(self, request: Request) -> Response:
        """Answer with the whole moment, from which on a page follows the events."""
        found = await self._feed.latest()
        return _json(found.whole, request)

    async def history(self, request: Request) -> Response:
        """Answer with how busy the devices were in the last hour."""
        return _json(msgspec.json.encode(await self._feed.history()), request)

    async def events(self, request: Request) -> Response:
        """Answer with a stream of what changes after the moment of that number, and on other hosts that are named."""
        after = request.query_params.get("after", "")
        streams = [feed_events(self._feed, int(after) if after.isdecimal() and len(after) <= _MOST_DIGITS else 0)]
        wanted = set(request.query_params.getlist("host"))
        streams += [remote.events() for name, remote in self._remotes.items() if name in wanted]
        return await self._streams.answer(merged(streams))

    async def hosts(self, request: Request) -> Response:
        """Answer with the other hosts that this page has."""
        return _json(msgspec.json.encode({"hosts": [remote.view for remote in self._remotes.values()]}), request)

    async def elsewhere(self, request: Request) -> Response:
        """Answer with what another host answers."""
        remote = self._remotes.get(request.query_params["host"])
        if remote is None:
            return PlainTextResponse("This page has no such host.\n", 404)
        return await remote.answer(request, self._streams)

    async def job_events(self, request: Request) -> Response:
        """Answer with a stream of what one job does, and of what its processes, or one of them, write."""
        job_id, replica = _id_of(request), request.query_params.get("replica") or None
        return await self._streams.answer(read_events(lambda: JobReader(gpusched.job(job_id), replica).read))

    async def job_file(self, request: Request) -> Response:
        """Answer with a file that a job left: a picture to be shown, and else one to be saved."""
        name = request.query_params.get("name", "")
        pieces = _pieces(await asyncio.to_thread(_opened, _id_of(request), name))
        if (kind := picture_type(name)) is not None:
            return StreamingResponse(pieces, media_type=kind)
        headers = {"Content-Disposition": "attachment"}  # the link of the page has the name
        return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)

    async def job_members(self, request: Request) -> Response:
        """Answer with what came of the members of an array."""
        found = await asyncio.to_thread(members_view, _id_of(request))
        return _json(msgspec.json.encode(found), request)

    async def job_usage(self, request: Request) -> Response:
        """Answer with what a job used beside what it was given."""
        found = await asyncio.to_thread(usage_view, _id_of(request))
        return _json(msgspec.json.encode(found), request)

    async def choices(self, request: Request) -> Response:
        """Answer with what a plan may be asked for."""
        return _json(msgspec.json.encode(await asyncio.to_thread(choices)), request)

    async def plan(self, request: Request) -> Response:
        """Answer with a plan."""
        async with self._working:  # one at a time: it computes
            try:
                found = await asyncio.to_thread(plan_view, dict(request.query_params))
            except GpuschedError as error:  # what does not fit is an answer, too
                found = error_of(error)
        return _json(msgspec.json.encode(found), request)

    async def doctor(self, request: Request) -> Response:
        """Answer with what is wrong with this host."""
        async with self._working:
            found = await asyncio.to_thread(doctor)
        return _json(msgspec.json.encode(found), request)

    async def metrics(self, _: Request) -> Response:
        """Answer with the numbers for Prometheus."""
        async with self._metrics:  # one reading at a time
            try:
                if self._read is None:
                    self._read = await asyncio.to_thread(metrics_reader)
                found = await asyncio.to_thread(self._read)
            except GpuschedError as error:
                return PlainTextResponse(f"{error.message}\n", 503)
        return Response(found.text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def act(self, request: Request) -> Response:
        """Do what a person asks for, and answer with a sentence on it."""
        try:
            action = msgspec.json.decode(await body_of(request), type=Action)
        except msgspec.MsgspecError as error:
            return PlainTextResponse(f"{error}\n", 400)
        done = await asyncio.to_thread(act, action)
        return _json(msgspec.json.encode({"done": done}), request)


def failed(_: Request, error: Exception) -> Response:
    """Return the answer to a request that met an error."""
    status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, GpuschedError) else 500
    return Response(msgspec.json.encode(error_of(error)), status, media_type="application/json")


def _id_of(request: Request) -> str:
    """Return the job that a request names. Raises NotFound for what can be no id."""
    try:
        return msgspec.convert(request.query_params.get("id", ""), JobId)
    except msgspec.ValidationError:
        raise NotFound("that is no id of a job", "choose one of the jobs") from None


def _opened(job_id: str, name: str) -> BinaryIO:
    file = gpusched.job(job_id).open(name)
    if os.fstat(file.fileno()).st_size > _MOST_FILE:
        file.close()
        raise NotFound(f"{name} has more than {_MOST_FILE >> 20} MiB", f"it is in the directory of {job_id}")
    return file


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file, however it grows meanwhile, in pieces: many may ask for large ones at the same time."""
    with file:
        for _ in range(_MOST_FILE // _PIECE):
            if not (piece := file.read(_PIECE)):
                return
            yield piece


def _json(content: bytes, request: Request) -> Response:
    headers = {}
    if "gzip" in request.headers.get("accept-encoding", "") and len(content) > _LEAST_COMPRESSED:
        content, headers = gzip.compress(content, 1), {"Content-Encoding": "gzip"}
    return Response(content, media_type="application/json", headers=headers)
