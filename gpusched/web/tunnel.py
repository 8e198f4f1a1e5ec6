"""The way to another host: one ssh, which runs `gpusched web --socket` there and forwards a socket of this host to it.

ssh reads the configuration of this user: names, jump hosts, a control connection that is open already.
"""

import asyncio
import os
import re
import secrets
import shlex
import signal
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
    *("-T", "-a", "-x", "-C", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
"""ControlMaster: an open connection of this user is used, but none that others use ends with this server."""

_RETRY_S: Final = (2.0, 5.0, 10.0, 30.0)
_READY_S: Final = 60.0
_END_S: Final = 1.0
_CANCEL_S: Final = 5.0
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
    """The way to one host. It reconnects for as long as this server runs."""

    def __init__(self, target: Target, ready_s: float = _READY_S, beat_s: float = BEAT_S) -> None:
        self._target, self._ready_s, self._beat_s = target, ready_s, beat_s
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
                tries = 1 if time.monotonic() - began > _RETRY_S[-1] else tries + 1
                await self._lose(why)
                await asyncio.sleep(_RETRY_S[min(tries, len(_RETRY_S)) - 1])
        finally:
            self._folder.cleanup()

    async def change(self, seen: Away | None, most_s: float) -> None:
        """Wait until `away` is another than was seen, or for `most_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s), self._changed:
                await self._changed.wait_for(lambda: self.away is not seen)

    async def _lose(self, why: str) -> None:
        await self._set(Away(time.time() if self.away is None else self.away.since, why))

    async def _set(self, away: Away | None) -> None:
        async with self._changed:
            self.away = away
            self._changed.notify_all()

    async def _connected(self) -> str:
        """Run ssh until it ends; return what it complained of last."""
        with suppress(FileExistsError):  # what is old in /tmp may have been removed
            self.socket.parent.mkdir(0o700)
        if self.socket.parent.stat().st_uid != os.geteuid():
            return f"{self.socket.parent} is not ours"
        self.socket.unlink(missing_ok=True)
        there = f"/tmp/gpusched-web-{secrets.token_hex(16)}"  # noqa: S108 (it is 0600, and no request goes there before READY)
        complaint = bytearray()
        try:
            async with _run(self._argv(there), complaint, self._beat_s) as process:
                why = await self._follow(process)
                if self.away is None:  # at once: another user there may take that name now
                    await self._lose(why or "its ssh has ended")
        except OSError as error:
            return f"ssh cannot be run: {error.strerror}"
        finally:
            with suppress(OSError):
                await self._cancel(there)
        lines = complaint.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return why or last[:_MOST_COMPLAINT] or f"ssh ended with code {process.returncode}"

    def _argv(self, there: str) -> list[str]:
        remote = f"exec {shlex.quote(self._target.program)} web --socket {there}"
        return ["ssh", *_OPTIONS, *self._forwarding(there), remote]

    def _forwarding(self, there: str) -> list[str]:
        port = [] if self._target.port is None else ["-p", str(self._target.port)]
        return [*port, "-L", f"{self.socket}:{there}", "--", self._target.host]

    async def _cancel(self, there: str) -> None:
        """End the forwarding in a connection that stays open, if there is one: else it has ended."""
        null = asyncio.subprocess.DEVNULL
        argv = ["ssh", "-o", "BatchMode=yes", "-O", "cancel", *self._forwarding(there)]
        process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=null)
        await _end(process, patience_s=_CANCEL_S)

    async def _follow(self, process: asyncio.subprocess.Process) -> str:
        """Follow what comes from there until it ends; return what was wrong with it."""
        assert process.stdout is not None  # noqa: S101 (for the type checker)
        try:
            async with asyncio.timeout(self._ready_s) as limit:
                async for line in process.stdout:
                    if line.strip() != READY.encode():
                        continue
                    if not self.socket.is_socket():
                        return "ssh could not forward a socket"
                    limit.reschedule(None)
                    await self._set(None)
        except TimeoutError:
            return f"nothing was ready there after {self._ready_s:g} s"
        except ValueError:  # a line of more than 64 KiB
            return "what it wrote is not understood"
        return ""


@asynccontextmanager
async def _run(argv: Sequence[str], complaint: bytearray, beat_s: float) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run ssh until the end of this context. `complaint` gets the last of what it writes to standard error.

    That pipe is this module's own: other programs, such as a ProxyCommand, may hold it open after ssh has ended, and
    asyncio would wait for them.
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
        beating = asyncio.create_task(_beat(process.stdin, beat_s))
        keeping = asyncio.create_task(_keep_end(pipe, complaint))
        try:
            yield process
        finally:
            _signal(process, signal.SIGTERM)  # so that it ends its ProxyCommand
            beating.cancel()
            await _end(process, patience_s=_END_S)
            await asyncio.wait([keeping], timeout=_END_S)
            keeping.cancel()
            await asyncio.gather(beating, keeping, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process, *, patience_s: float) -> None:
    """Wait for the end of a process for some seconds, and then kill it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):  # wait_for loses a cancellation now and then, until Python 3.12
            await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal. The process's own methods would wait for it in the place of asyncio."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def _beat(stream: asyncio.StreamWriter, every_s: float) -> None:
    """Show the server there that somebody wants it, also where a connection breaks without a word."""
    with suppress(OSError):
        while True:
            stream.write(b"\n")
            await stream.drain()
            await asyncio.sleep(every_s)


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
