"""Endpoints in private directories, real child processes, and waiting on conditions."""

import math
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from gpusched.channel import Learner, Limits
from gpusched.channel.local import LocalClient, LocalServer
from gpusched.channel.messages import PROTOCOL, FromActor, Hello, encode_header
from gpusched.channel.transport import Received, Route
from gpusched.joining.keys import JoinKey, make_server_key, new_key, secure_client
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("child.py")
Start = Callable[..., "subprocess.Popen[str]"]
WaitUntil = Callable[..., None]
ANYWHERE = "tcp://127.0.0.1:0"


def network(learner: Learner) -> str:
    """Return where actors on other hosts would connect."""
    assert learner.listening is not None
    return learner.listening


def turned_away(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of those whom a learner did not let in, or put out."""
    return [record.getMessage() for record in caplog.records if "turned away" in record.getMessage()]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def endpoint(directory: Path) -> str:
    return f"ipc://{directory}/job.sock"


def next_of(socket: LocalClient | LocalServer, patience_s: float = PATIENCE_S) -> Received | None:
    """Return the next message, None if none comes."""
    until = time.monotonic() + patience_s
    while (found := socket.receive()) is None and (left := until - time.monotonic()) > 0:
        select.select([socket.descriptor], [], [], left)
    return found


class Router:
    """A learner's socket, of which the test itself says what a learner would."""

    def __init__(self, socket: LocalServer) -> None:
        self._socket = socket

    def say(self, parts: Sequence[Any]) -> None:
        """Send this to the route that comes first."""
        assert self._socket.send(parts[0], parts[1:])

    def hear(self, tag: str, but_not: str = "") -> tuple[Route, list[object]]:
        """Return the route and the next header of that tag; heartbeats and such may come before it."""
        while (received := next_of(self._socket)) is not None:
            message: list[object] = msgspec.msgpack.decode(received.header)
            assert message[0] != but_not
            if message[0] == tag:
                return received.route, message
        raise AssertionError(f"no {tag} came")

    def rest(self) -> list[object]:
        """Return the tags of what has come, and comes in the next moment."""
        tags = []
        while (received := next_of(self._socket, 0.1)) is not None:
            tags.append(msgspec.msgpack.decode(received.header)[0])
        return tags


@pytest.fixture
def router(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Router]:
    for module in ("actor_protocol", "actor_thread"):  # a test answers one hello: on a slow host more would come
        monkeypatch.setattr(f"gpusched.channel.{module}.HELLO_AGAIN_S", 3600.0)
    socket = LocalServer(Path(endpoint.removeprefix("ipc://")), Limits())
    yield Router(socket)
    socket.close()


class Stranger:
    """A process of this host that says to a learner what it likes."""

    def __init__(self, endpoint: str) -> None:
        self.socket = LocalClient(Path(endpoint.removeprefix("ipc://")), Limits())

    def say(self, *parts: bytes | FromActor) -> None:
        """Send this, as soon as a learner is there."""
        until = time.monotonic() + PATIENCE_S
        message = [part if isinstance(part, bytes) else encode_header(part) for part in parts]
        while not self.socket.send(0, message):
            assert time.monotonic() < until, "no learner is there"
            time.sleep(self.socket.again_in() if self.socket.again_in() < math.inf else 0.01)

    def hear(self, tag: str) -> list[object]:
        """Return the next message of that tag; heartbeats and such may come before it."""
        while (received := next_of(self.socket)) is not None:
            message: list[object] = msgspec.msgpack.decode(received.header)
            if message[0] == tag:
                return message
        raise AssertionError(f"no {tag} came")

    def greet(self, name: str) -> None:
        """Say hello under this name."""
        self.say(Hello(PROTOCOL, name, 0, "nonce", 1, "", 0, ""))

    def join(self, hello: Hello) -> None:
        """Say hello, and wait for the welcome."""
        self.say(hello)
        self.hear("welcome")


@pytest.fixture
def quick() -> Limits:
    return Limits(heartbeat_s=0.1, silence_s=1.0, stuck_s=0.5)


@pytest.fixture
def wait_until() -> WaitUntil:
    def wait(condition: Callable[[], object], what: str = "", timeout: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}"
            time.sleep(0.01)

    return wait


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `child.py MODE ENDPOINT ARGUMENTS`; whatever still runs at the end is killed."""
    children: list[subprocess.Popen[str]] = []

    def run(mode: str, endpoint: str, *arguments: object) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(CHILD), mode, endpoint, *map(str, arguments)]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


@pytest.fixture
def keys(directory: Path) -> Path:
    """The directory of a job's keys: its own, and those of two who may join."""
    found = directory / "keys"
    make_server_key(found, "job-1")
    for name in ("lab", "other"):
        new_key(found, name)
    return found


class Relay:
    """A host between an actor and its learner: it keeps what went by, and the link can be cut."""

    def __init__(self, to: str) -> None:
        host, _, port = to.removeprefix("tcp://").rpartition(":")
        self._to = (host, int(port))
        self.down: list[bytes] = []
        self.up: list[bytes] = []
        self.ended = 0
        self.opened = 0
        self.pause_s = 0.0  # after each 64 KiB: a slow link
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._open, daemon=True).start()

    def cut(self) -> None:
        """Break all connections; others may come."""
        for each in self._ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self._door, *self._ends):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _open(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                self.opened += 1
                for source, target, kept in ((near, far, self.up), (far, near, self.down)):
                    threading.Thread(target=self._carry, args=(source, target, kept), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, kept: list[bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept.append(data)
                target.sendall(data)
                time.sleep(self.pause_s)
        self.ended += 1
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay() -> Iterator[Callable[[str], Relay]]:
    """Make relays to an endpoint; they end with the test."""
    made: list[Relay] = []

    def make(to: str) -> Relay:
        made.append(Relay(to))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Dealer:
    """A peer that says what it likes; with a key, if it is given one."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, key: JoinKey | None) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if key is not None:
            secure_client(self.socket, key)
        self.socket.connect(endpoint)

    def say(self, message: FromActor, *frames: bytes) -> None:
        self.socket.send_multipart([encode_header(message), *frames])

    def greet(self, name: str) -> None:
        self.say(Hello(PROTOCOL, name, 0, "nonce", 1, "", 0, ""))

    def hear(self, tag: str) -> list[object]:
        """Return the next message of that tag; heartbeats and such may come before it."""
        while self.socket.poll(1000 * int(PATIENCE_S)):
            message: list[object] = msgspec.msgpack.decode(self.socket.recv_multipart()[0])
            if message[0] == tag:
                return message
        raise AssertionError(f"no {tag} came")


MakeDealer = Callable[[str, JoinKey | None], Dealer]
Launch = Callable[..., None]


@pytest.fixture
def run_dir(directory: Path) -> Path:
    found = directory / "run"
    found.mkdir()
    return found


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, endpoint: str, run_dir: Path) -> Launch:
    """Make this process a replica, as the environment tells one."""

    def become(role: str, **further: object) -> None:
        told = {"JOB": "job-1", "ROLE": role, "RANK": 0, "ROLE_COUNT": 1, "REPLICA": f"{role}.0", "RUN_DIR": run_dir}
        for name, value in ({"ENDPOINT": endpoint} | told | further).items():
            monkeypatch.setenv(f"GPUSCHED_{name}", str(value))

    return become


@pytest.fixture
def dealer() -> Iterator[MakeDealer]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield lambda endpoint, key: Dealer(context, endpoint, key)
    context.destroy(linger=0)
