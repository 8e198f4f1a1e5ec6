"""How a command speaks to the daemon: one question, one answer, and never an endless wait.

No daemon, one that hangs and one of another version are three different messages, all of them NoDaemon.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import gpusched
from gpusched.control.codec import decode_answer, encode
from gpusched.control.messages import PROTOCOL, Answer, Refused, Request
from gpusched.control.place import control_socket, is_locked, listener, private_directory
from gpusched.environment import outside_environment
from gpusched.errors import GpuschedError, HostFault, NoDaemon, ProtocolError
from gpusched.interpreter import own_command
from gpusched.linux.files import make_private, require_descriptors
from gpusched.linux.interrupt import raise_if_interrupted
from gpusched.linux.regular_files import read_regular
from gpusched.settings import Settings, places

__all__ = [
    "Absent",
    "Client",
    "Unanswered",
    "connect_or_start",
    "control_socket",
    "daemon_environment",
    "daemon_pid",
    "listener",
]

_START_HINT: Final = "start one: gpusched daemon start"
_START_PATIENCE_S: Final = 20.0  # it imports, perhaps from a slow disk, and waits 8 s for the driver
_ANSWER_PATIENCE_S: Final = 10.0  # a daemon on a host with many more processes than CPUs is late, and well
_LARGEST_ANSWER: Final = 256 << 20
_LONGEST_REPLY: Final = 65536
_POLL_EVERY_S: Final = 0.25
_RETRY_S: Final = 0.01
_STARTS: Final = 3
_MOST_PID: Final = 100
_LONGEST_LOG: Final = 1 << 20
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
"""How the log is opened: it may be a link, and a pipe without a reader in its place is an error."""


class Absent(NoDaemon):
    """There is no daemon to ask."""


class Unanswered(NoDaemon):
    """A daemon was asked and did not answer: what it was asked for may be done. `gone`: it has ended since."""

    def __init__(self, message: str, hint: str, *, gone: bool) -> None:
        super().__init__(message, hint)
        self.gone = gone


class Client:
    """A link to the daemon of this user and state directory, made at the first question. A context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = control_socket(settings)
        self._context: Any = None
        self._socket: Any = None
        self._number = 0
        self._daemon = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the link, and what was not sent yet; safe to call twice."""
        if self._socket is not None:
            self._socket.close(linger=0)
            self._context.term()
            self._socket = self._context = None

    def ask(self, request: Request, patience_s: float = _ANSWER_PATIENCE_S) -> Answer:
        """Return the daemon's answer; a request that waits (`wait_s`) may take that much longer.

        Raises NoDaemon if there is none, or one that does not answer in time, or of another version; and if the
        daemon refuses, the error that it names.
        """
        self.connect(patience_s)
        self._number += 1
        number = self._number.to_bytes(8, "big")
        self._socket.send_multipart([bytes([PROTOCOL]), number, encode(request)])
        deadline = time.monotonic() + patience_s + getattr(request, "wait_s", 0.0)
        return _accepted(self._receive(number, deadline, patience_s))

    def connect(self, patience_s: float = _ANSWER_PATIENCE_S) -> None:
        """Make the link now, if there is none yet. Raises NoDaemon if no daemon listens."""
        if self._socket is not None:
            return
        import zmq

        deadline = time.monotonic() + patience_s
        while (daemon := listener(self._path)) is None:  # one that has its lock is about to listen, or to end
            if not is_locked(self._settings):
                raise _no_daemon(self._settings)
            if time.monotonic() > deadline:
                problem, hint = self._silence(patience_s)
                raise NoDaemon(problem, f"see {self._settings.state_dir / 'daemon.log'}; {hint}")
            time.sleep(_RETRY_S)
        self._daemon = daemon
        private_directory(self._settings.runtime_dir)  # requests may hold secrets
        require_descriptors()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.maxmsgsize = _LARGEST_ANSWER
        self._socket.connect(f"ipc://{self._path}")

    def _receive(self, number: bytes, deadline: float, patience_s: float) -> Answer:
        """Return the answer to the request of that number; late answers to earlier ones are dropped."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Unanswered(*self._silence(patience_s), gone=False)
            if not self._socket.poll(1000 * min(left, _POLL_EVERY_S)):
                raise_if_interrupted()
                self._require_the_same()
                continue
            frames = self._socket.recv_multipart()
            if len(frames) == 3 and frames[1] == number:  # noqa: PLR2004 (see messages.py)
                return _read(frames[0], frames[2])

    def _require_the_same(self) -> None:
        """Raise Unanswered if the daemon that was asked is gone; ZeroMQ would wait for the next one without a word."""
        now = listener(self._path)
        if now is None or (now and self._daemon and now != self._daemon):
            raise Unanswered("the daemon ended before it answered", "see what it has done: gpusched ps", gone=True)

    def _silence(self, patience_s: float) -> tuple[str, str]:
        """Return what is wrong with a daemon that is there and does not answer, and what to do."""
        pid = listener(self._path) or daemon_pid(self._settings)
        problem = f"the daemon (process {pid}) does not answer within {patience_s:g} s"
        return problem, "jobs go on; end it with: gpusched daemon stop --kill"


def connect_or_start(settings: Settings) -> Client:
    """Return a link to the daemon, having started one if there is none.

    Raises the error that it ended with, and NoDaemon where it has not begun within 20 s, or does not listen within 10 s
    more.
    """
    for left in reversed(range(_STARTS)):
        if listener(control_socket(settings)) is None:
            _spawn_daemon(settings)
        client = Client(settings)
        try:
            client.connect()
            break
        except Absent:  # the one that was there just now, or was found by the one that was to begin, has ended
            if not left:
                raise
    return client


def _spawn_daemon(settings: Settings) -> None:
    """Start the daemon in a new session, and return once it serves, has found another, or has its lock and is late.

    It gets the environment of this process, less what belongs to a job that this process may be part of. Raises the
    error that it ended with, and NoDaemon where it has not begun.
    """
    import select
    import subprocess  # a command that only asks starts sooner without it

    private_directory(settings.runtime_dir)
    log = settings.state_dir / "daemon.log"
    inner, outer = os.pipe2(os.O_CLOEXEC)
    try:
        make_private(settings.state_dir)
        if not is_locked(settings):
            _shorten(log)
        with os.fdopen(os.open(log, _APPEND, 0o600), "ab") as output:
            log.chmod(0o600)
            subprocess.run(
                own_command("gpusched.daemon", "--background", str(outer)),
                cwd="/",  # which is never in the way
                env=daemon_environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(outer,),
                start_new_session=True,
                check=False,  # it answers through the pipe
            )
    except OSError as error:
        os.close(outer)
        os.close(inner)
        raise HostFault(f"the daemon cannot be started: {error}", "see that the state directory is writable") from None
    os.close(outer)
    with os.fdopen(inner, "rb", buffering=0) as pipe:
        if select.select([pipe], [], [], _START_PATIENCE_S)[0]:
            _raise_start_error(os.read(inner, _LONGEST_REPLY), log)  # which was written at once
        elif not is_locked(settings):  # one that has its lock is waited for by the link
            raise NoDaemon(f"the daemon has not begun within {_START_PATIENCE_S:g} s", f"it may begin yet: see {log}")


def _shorten(log: Path) -> None:
    """Keep the log from growing over the years: the older part is dropped when a daemon begins."""
    with suppress(OSError):
        if log.stat().st_size > _LONGEST_LOG:
            log.replace(log.with_name("daemon.log.1"))


def daemon_pid(settings: Settings) -> int | None:
    """Return the pid that the last daemon wrote into its lock file, or None; it may be gone since."""
    try:
        return int(read_regular(settings.state_dir / "daemon.lock", _MOST_PID))
    except (OSError, ValueError):
        return None


def daemon_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a daemon that this process starts or becomes, with each path whole. Raises UsageError.

    The daemon may outlive the job that this process is part of.
    """
    return outside_environment(os.environ) | places(os.environ) | settings.environment()


def _raise_start_error(output: bytes, log: Path) -> None:
    """Raise the error that a daemon ended with: nothing if it serves, or if another one does."""
    if output in (b"ready", b"another"):
        return
    import json

    try:
        answer = json.loads(output)
        raise _error(answer["code"], answer["message"], answer["hint"])
    except (ValueError, KeyError, TypeError):
        raise HostFault("the daemon ended before it could serve", f"see the end of {log}") from None


def _read(protocol: bytes, frame: bytes) -> Answer:
    """Return the answer; one of another protocol is NoDaemon, whatever it holds."""
    if protocol == bytes([PROTOCOL]):
        try:
            return decode_answer(frame)
        except ProtocolError as error:
            raise _other_version("", str(error)) from None
    try:
        answer = decode_answer(frame)
    except ProtocolError:
        answer = None
    version = answer.version if isinstance(answer, Refused) else ""
    raise _other_version(version, f"it speaks protocol {protocol[0] if protocol else '?'} and this one {PROTOCOL}")


def _other_version(version: str, how: str) -> NoDaemon:
    who = f"the daemon is gpusched {version}" if version else "the daemon is of another version"
    return NoDaemon(
        f"{who}, and this is gpusched {gpusched.__version__}: {how}",
        "jobs go on meanwhile: gpusched daemon stop --kill; gpusched daemon start",
    )


def _accepted(answer: Answer) -> Answer:
    if not isinstance(answer, Refused):
        return answer
    if answer.protocol != PROTOCOL:
        raise _other_version(answer.version, f"it speaks protocol {answer.protocol} and this one {PROTOCOL}")
    raise _error(answer.code, answer.message, answer.hint)


def _error(code: str, message: str, hint: str) -> GpuschedError:
    kinds: list[type[GpuschedError]] = [GpuschedError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next((kind for kind in kinds if kind.code == code), GpuschedError)(message, hint)


def _no_daemon(settings: Settings) -> Absent:
    return Absent(f"no daemon runs for {settings.state_dir}", _START_HINT)
