"""The daemon's side of a fork server (supervisor/fork_server.py): start it, ask it for guards, end it.

Nothing here waits. It makes starts fast and nothing depends on it: whatever it cannot do, `execution.start.spawn` does.
An attempt of which it is asked may start once only, by its nonce, so a server that hangs or is killed is given up, and
what it owed is started in another way (docs/decisions/0034-guards-are-forked.md).
"""

import contextlib
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from gpusched.execution.directory import JobDirectory
from gpusched.interpreter import own_command
from gpusched.linux.regular_files import open_regular
from gpusched.settings import PLACES
from gpusched.supervisor.fork_request import ForkServerMessage, GuardEnded, GuardRequest, Loaded

__all__ = ["ForkServerClient"]

_LOG: Final = logging.getLogger(__name__)
_SOON_S: Final = 2.0
"""Starts come quickly where the next one follows within that."""

_IDLE_S: Final = 30.0
_LOAD_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 10.0
"""How long none is started after one that was given up."""

_LONG_PAUSE_S: Final = 600.0
"""The same after one that could not even begin: the next one hardly can."""

_MOST_BYTES: Final = 1 << 12
_OWN: Final = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", *PLACES)
"""What the server itself needs to import from where the daemon does; a guard gets nothing of it."""

_UTF8: Final = re.compile(r"(|C|POSIX|[^.]*\.utf-?8(@.*)?)", re.IGNORECASE)
"""Locales in which Python reads names of files as UTF-8 (PEP 538, PEP 540)."""


class ForkServerClient:
    """The fork server of this process, if there is one, with what it needs of the environment `environ`.

    What it forks may open `limit` files. Times are monotonic seconds.
    """

    def __init__(self, environ: Mapping[str, str], limit: tuple[int, int]) -> None:
        self._environ = {name: environ[name] for name in _OWN if name in environ} | {"LC_ALL": "C.UTF-8"}
        self._limit = limit
        self._control: socket.socket | None = None
        self._pid = 0
        self._loaded = False
        self._began = self._used = float("-inf")
        self._not_before = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked for guards."""
        return self._loaded

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when there is something to `receive`, None if there is none."""
        return None if self._control is None else self._control.fileno()

    def fork(self, directory: JobDirectory, nonce: str, environ: Mapping[str, str], now: float) -> bool:
        """Ask for a guard as `execution.start.spawn` starts it; return False if that is to start it.

        A server is started where starts come quickly, for those to come.
        """
        soon, self._used = now - self._used < _SOON_S, now
        if self._control is None and soon and now >= self._not_before:
            self._start(now)
        content = _request(directory, nonce, environ) if self._loaded and _reads_utf8(environ) else None
        return content is not None and self._send(directory, nonce, content)

    def receive(self, now: float) -> tuple[list[str], bool]:
        """Return the nonces of guards that have ended, and whether the server has: then it serves no request any more.

        The server was started by this process, so its messages are what it has sent.
        """
        ended: list[str] = []
        while self._control is not None:
            try:
                if not self._pid:
                    raise ConnectionError
                packet = self._control.recv(_MOST_BYTES)
                message = msgspec.msgpack.decode(packet, type=ForkServerMessage) if packet else None
            except BlockingIOError:
                return ended, False
            except (OSError, msgspec.MsgspecError):
                message = None
            match message:
                case Loaded():
                    self._loaded = True
                case GuardEnded():
                    ended.append(message.nonce)
                case None:
                    self.give_up("ended by itself", now)
                    return ended, True
        return ended, False

    def reaped(self, pid: int) -> None:
        """Note that a child of this process ended and was reaped."""
        if pid == self._pid:
            self._pid = 0

    def check(self, now: float) -> None:
        """End a server that has had nothing to do for a while, and one that does not finish its imports."""
        if self._control is None:
            return
        if now - self._used > _IDLE_S:
            self._close()
        elif not self._loaded and now - self._began > _LOAD_PATIENCE_S:
            self.give_up(f"was not ready within {_LOAD_PATIENCE_S:.0f} s", now)

    def give_up(self, why: str, now: float) -> None:
        """Do without the server, and without another one for a while: it serves no request from now on."""
        if self._control is not None:
            _LOG.warning("the fork server, process %d, %s: guards are executed meanwhile", self._pid, why)
            self._not_before = now + (_PAUSE_S if self._loaded else _LONG_PAUSE_S)
            self._close()
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)

    def _start(self, now: float) -> None:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                server = subprocess.Popen(
                    own_command("gpusched.supervisor.fork_server", str(theirs.fileno())),
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except (OSError, subprocess.SubprocessError) as error:
            control.close()
            self._not_before = now + _PAUSE_S
            _LOG.warning("no fork server could be started: %s", error)
            return
        server.returncode = 0  # the loop waits for it
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, self._limit)
        control.setblocking(False)
        self._control, self._pid, self._began = control, server.pid, now

    def _send(self, directory: JobDirectory, nonce: str, content: bytes) -> bool:
        """Send a request if the socket has room for it. An odd file in the place of the log is for spawn to report."""
        opened: list[int] = []
        try:
            opened.append(os.memfd_create("guard request", os.MFD_CLOEXEC))
            opened.append(open_regular(directory.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
            written = os.write(opened[0], content) == len(content)
            if not written or self._control is None:
                return False
            socket.send_fds(self._control, [nonce.encode()], opened)
        except OSError:
            return False
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return True

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, self._loaded = None, False


def _request(directory: JobDirectory, nonce: str, environ: Mapping[str, str]) -> bytes | None:
    """Return what the guard is started with; None for what no process can have: spawn raises the reason."""
    try:
        env = tuple((os.fsencode(name), os.fsencode(value)) for name, value in environ.items())
        argv = tuple(map(os.fsencode, own_command("gpusched.supervisor", str(directory.path), nonce)))
    except UnicodeEncodeError:
        return None
    if any(not name or b"=" in name or b"\0" in name + value for name, value in env):
        return None
    return msgspec.msgpack.encode(GuardRequest(argv=argv, env=env))


def _reads_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether a guard that is executed in `environ` reads the names of files as a forked one does."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return sys.getfilesystemencoding() == "utf-8" and _UTF8.fullmatch(locale) is not None
