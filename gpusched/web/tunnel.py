"""The way to another host: one ssh, which runs `gpusched web --socket` there and forwards a socket of this host to it.

ssh reads the configuration of this user: names, jump hosts, a control connection that is open already.
"""

import asyncio
import os
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from gpusched.errors import UsageError
from gpusched.web.listening import BEAT_S, READY

__all__ = ["Away", "Target", "Tunnel", "targets_of"]

_TARGET: Final = re.compile(
    r"(?P<name>[\w.-]{1,64})=ssh://(?P<host>(?:[\w.-]+@)?(?:\w[\w.-]*|\[[0-9a-fA-F:.]+\]))(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<program>/[^,]+)?(?P<watched>,read-only)?",
    re.ASCII,
)
_OPTIONS: Final = (
    *("-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
_RETRY_S: Final = (2.0, 5.0, 10.0, 30.0)
_READY_S: Final = 60.0
_END_S: Final = 1.0
_BLOCK: Final = 4096
_MOST_COMPLAINT: Final = 300


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


class Away(NamedTuple):
    """A host cannot be asked: since when, in seconds since 1970, and why."""

    since: float
    why: str


class Tunnel:
    """The way to one host. It is made again and again, for as long as this server runs."""

    def __init__(self, target: Target, retry_s: Sequence[float] = _RETRY_S, ready_s: float = _READY_S) -> None:
        self._target, self._retry_s, self._ready_s = target, retry_s, ready_s
        self._folder = tempfile.TemporaryDirectory(prefix="gpusched-web-")
        self.socket = Path(self._folder.name) / "socket"
        self.away: Away | None = Away(time.time(), "it was not reached yet")
        self._changed = asyncio.Condition()

    async def keep(self) -> None:
        """Connect again and again, until this task is cancelled."""
        tries = 1
        try:
            while True:
                began = time.monotonic()
                why = await self._connected()
                tries = 1 if time.monotonic() - began > self._retry_s[-1] else tries + 1
                await self._set(Away(time.time() if self.away is None else self.away.since, why))
                await asyncio.sleep(self._retry_s[min(tries, len(self._retry_s)) - 1])
        finally:
            self._folder.cleanup()

    async def change(self, seen: Away | None, most_s: float) -> None:
        """Wait until `away` is another than was seen, or for `most_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s), self._changed:
                await self._changed.wait_for(lambda: self.away is not seen)

    async def _set(self, away: Away | None) -> None:
        async with self._changed:
            self.away = away
            self._changed.notify_all()

    async def _connected(self) -> str:
        """Run ssh until it ends; return what it complained of last."""
        complaint = bytearray()
        try:
            async with _run(self._argv(), complaint) as process:
                why = await self._heed(process)
        except OSError as error:
            return f"ssh cannot be run: {error.strerror}"
        lines = complaint.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return why or last[:_MOST_COMPLAINT] or f"ssh ended with code {process.returncode}"

    def _argv(self) -> list[str]:
        there = f"/tmp/gpusched-web-{secrets.token_hex(16)}"  # noqa: S108 (it is 0600, and no request goes there before READY)
        self.socket.unlink(missing_ok=True)  # a control connection that stays open may still listen there
        port = () if self._target.port is None else ("-p", str(self._target.port))
        remote = f"exec {shlex.quote(self._target.program)} web --socket {there}"
        return ["ssh", *_OPTIONS, *port, "-L", f"{self.socket}:{there}", "--", self._target.host, remote]

    async def _heed(self, process: asyncio.subprocess.Process) -> str:
        """Follow what comes from there until it ends; return what was wrong with it."""
        assert process.stdout is not None  # noqa: S101 (for the type checker)
        try:
            async with asyncio.timeout(self._ready_s) as limit:
                async for line in process.stdout:
                    if line.strip() == READY.encode():
                        limit.reschedule(None)
                        await self._set(None)
        except TimeoutError:
            return f"nothing was ready there after {self._ready_s:g} s"
        except ValueError:  # a line of more than 64 KiB
            return "what it wrote is not understood"
        return ""


@asynccontextmanager
async def _run(argv: Sequence[str], complaint: bytearray) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run ssh; it is killed at the end. `complaint` gets the end of what it writes to standard error.

    That pipe is this module's own, as asyncio would wait until all who have it end: a program that connects ssh
    (ProxyCommand) or a control connection may go on.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as pipe:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=writing
            )
        finally:
            os.close(writing)
        assert process.stdin is not None  # noqa: S101 (for the type checker)
        beating = asyncio.create_task(_beat(process.stdin))
        keeping = asyncio.create_task(_keep_end(pipe, complaint))
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            beating.cancel()
            await asyncio.wait([keeping], timeout=_END_S)
            keeping.cancel()
            await asyncio.gather(beating, keeping, return_exceptions=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_S)


async def _beat(stream: asyncio.StreamWriter) -> None:
    """Show the server there that somebody wants it, also where a connection breaks without a word."""
    with suppress(OSError):
        while True:
            stream.write(b"\n")
            await stream.drain()
            await asyncio.sleep(BEAT_S)


async def _keep_end(pipe: BinaryIO, end: bytearray) -> None:
    """Read to the end, which may never come; keep the last of it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while piece := await reader.read(_BLOCK):
            end[:] = (end + piece)[-_BLOCK:]
    finally:
        transport.close()
