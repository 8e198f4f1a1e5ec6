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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpusched.execution.directory import JobDirectory
from gpusched.execution.start import files_option
from gpusched.interpreter import own_command
from gpusched.linux.files import make_private
from gpusched.linux.regular_files import open_regular
from gpusched.settings import PLACES
from gpusched.supervisor.fork_request import ForkServerMessage, GuardEnded, GuardRequest
from gpusched.zygote.preload import Preload, import_environment
from gpusched.zygote.protocol import Loading, Ready, Refused

__all__ = ["ForkServerClient", "Setup", "common_server", "server_of_array"]

_LOG: Final = logging.getLogger(__name__)
_SOON_S: Final = 2.0
"""Starts come quickly where the next one follows within that."""

_IDLE_S: Final = 30.0
_LOAD_PATIENCE_S: Final = 30.0
_IDLE_WITH_MODULES_S: Final = 600.0
_MODULES_PATIENCE_S: Final = 180.0
_PAUSE_S: Final = 10.0
"""How long none is started after one that was given up."""

_LONG_PAUSE_S: Final = 600.0
"""The same after one that could not even begin: the next one hardly can."""

_MOST_BYTES: Final = 1 << 12
_STDERR: Final = 2
_OWN: Final = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", *PLACES)
"""What the server itself needs to import from where the daemon does; a guard gets nothing of it."""

_UTF8: Final = re.compile(r"(|C|POSIX|[^.]*\.utf-?8(@.*)?)", re.IGNORECASE)
"""Locales in which Python reads names of files as UTF-8 (PEP 538, PEP 540)."""


class Setup(NamedTuple):
    """How a fork server is started: by `command` and the number of its descriptor, with `operands` behind that.

    It writes to the file `log`; None: to that of this process. It is started where two starts are `soon_s` apart, given
    up if its imports take longer than `patience_s`, and ended after `idle_s` without a start. `name` is for messages.
    """

    name: str
    command: tuple[str, ...]
    operands: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path | None
    soon_s: float
    patience_s: float
    idle_s: float


def common_server(environ: Mapping[str, str]) -> Setup:
    """Return how the server is started that is for all jobs, of a daemon with the environment `environ`."""
    return Setup(
        name="the fork server",
        command=tuple(own_command("gpusched.supervisor.fork_server")),
        operands=(),
        environ={name: environ[name] for name in _OWN if name in environ} | {"LC_ALL": "C.UTF-8"},
        log=None,
        soon_s=_SOON_S,
        patience_s=_LOAD_PATIENCE_S,
        idle_s=_IDLE_S,
    )


def server_of_array(array: str, preload: Preload, first: str | None, environ: Mapping[str, str], log: Path) -> Setup:
    """Return how the server of an array is started whose members have `environ`, and import from `first` at first."""
    options = ("-P",) if preload.safe_path else ()
    return Setup(
        name=f"the fork server of {array}",
        command=(sys.executable, *options, "-m", "gpusched.supervisor.fork_server"),
        operands=(preload.cwd, first or "", *preload.modules),
        environ=import_environment(environ),
        log=log,
        soon_s=float("inf"),
        patience_s=_MODULES_PATIENCE_S,
        idle_s=_IDLE_WITH_MODULES_S,
    )


class ForkServerClient:
    """The fork server of this `setup`, if there is one. What it forks may open `limit` files.

    `doing` is what it does before it has loaded, `trouble` why it could not. Times are monotonic seconds.
    """

    def __init__(self, setup: Setup, limit: tuple[int, int]) -> None:
        self._setup, self._limit = setup, limit
        self.doing: str | None = None
        self.trouble: str | None = None
        self._control: socket.socket | None = None
        self._pid = 0
        self._loaded = False
        self._began = self._used = float("-inf")
        self._not_before = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked for guards."""
        return self._loaded

    @property
    def is_awaited(self) -> bool:
        """Whether it imports just now what each job would import without it."""
        return bool(self._setup.operands) and self._control is not None and not self._loaded

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when there is something to `receive`, None if there is none."""
        return None if self._control is None else self._control.fileno()

    def fork(self, directory: JobDirectory, nonce: str, environ: Mapping[str, str], now: float) -> bool:
        """Ask for a guard as `execution.start.spawn` starts it; return False if that is to start it.

        A server is started where starts come quickly, for those to come.
        """
        soon, self._used = now - self._used <= self._setup.soon_s, now
        if not _reads_utf8(environ):
            self.trouble = "the locale is not UTF-8"
            return False
        if self._control is None and soon and now >= self._not_before:
            self._start(now)
        content = _request(directory, nonce, environ, self._limit) if self._loaded else None
        return content is not None and self._send(directory, nonce, content)

    def receive(self, now: float) -> tuple[list[str], bool]:
        """Return the nonces of guards that have ended, and whether the server has: then it serves no request any more.

        The server was started by this process, so its messages are what it has sent.
        """
        ended: list[str] = []
        while self._control is not None:
            try:
                packet = self._control.recv(_MOST_BYTES)
                message = msgspec.msgpack.decode(packet, type=ForkServerMessage) if packet else None
            except BlockingIOError:
                if self._pid:
                    return ended, False
                message = None  # it has ended, and a fork of it still has its socket
            except (OSError, msgspec.MsgspecError):
                message = None
            match message:
                case Ready():
                    self._loaded, self.doing, self.trouble = True, None, None
                case Loading():
                    self.doing = f"preloading {message.module}"
                case Refused():
                    self.trouble, self._not_before = message.message, float("inf")
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
        if now - self._used > self._setup.idle_s:
            self.end()
        elif not self._loaded and now - self._began > self._setup.patience_s:
            self.give_up(f"was not ready within {self._setup.patience_s:.0f} s", now)

    def give_up(self, why: str, now: float) -> None:
        """Do without the server, and without another one for a while: it serves no request from now on."""
        if self._control is not None:
            if not self._loaded:
                self.trouble = self.trouble or f"the process that imports {why}"
                why = f"cannot be used: {self.trouble}"
            _LOG.warning("%s, process %d, %s: guards are executed meanwhile", self._setup.name, self._pid, why)
            self._not_before = max(self._not_before, now + (_PAUSE_S if self._loaded else _LONG_PAUSE_S))
            self._kill()
            self._close()

    def _start(self, now: float) -> None:
        setup = self._setup
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, _output(setup.log) as output:
                server = subprocess.Popen(
                    [*setup.command, str(theirs.fileno()), *setup.operands],
                    env=setup.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            control.close()
            self._not_before = now + _PAUSE_S
            self.trouble = f"no process to import could be started: {error}"
            _LOG.warning("%s could not be started: %s", setup.name, error)
            return
        server.returncode = 0  # the loop waits for it
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, self._limit)
        control.setblocking(False)
        self._control, self._pid, self._began = control, server.pid, now
        self.doing, self.trouble = ("preloading" if setup.operands else None), None

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

    def end(self) -> None:
        """End the server, for which there is nothing more to do; what modules do at an end is not for it."""
        self._close()
        if self._setup.operands:
            self._kill()

    def _kill(self) -> None:
        """Kill the server, and what an import has started; guards lead groups of their own."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, self._loaded, self.doing = None, False, None


@contextlib.contextmanager
def _output(log: Path | None) -> Iterator[int]:
    if log is None:
        yield _STDERR
        return
    make_private(log.parent)
    descriptor = open_regular(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _request(directory: JobDirectory, nonce: str, environ: Mapping[str, str], files: tuple[int, int]) -> bytes | None:
    """Return what the guard is started with; None for what no process can have: spawn raises the reason."""
    try:
        env = tuple((os.fsencode(name), os.fsencode(value)) for name, value in environ.items())
        command = own_command("gpusched.supervisor", files_option(files), str(directory.path), nonce)
        argv = tuple(map(os.fsencode, command))
    except UnicodeEncodeError:
        return None
    if any(not name or b"=" in name or b"\0" in name + value for name, value in env):
        return None
    return msgspec.msgpack.encode(GuardRequest(argv=argv, env=env))


def _reads_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether a guard that is executed in `environ` reads the names of files as a forked one does."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return sys.getfilesystemencoding() == "utf-8" and _UTF8.fullmatch(locale) is not None
