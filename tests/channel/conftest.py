"""Endpoints in private directories, real child processes, and waiting on conditions."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from gpusched.channel import Limits

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("child.py")
Start = Callable[..., "subprocess.Popen[str]"]
WaitUntil = Callable[..., None]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def endpoint(directory: Path) -> str:
    return f"ipc://{directory}/job.sock"


class Router:
    """A learner's socket, of which the test itself says what a learner would."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.say = socket.send_multipart
        self._socket = socket

    def hear(self, tag: str) -> tuple[bytes, list[object]]:
        """Return the route and the next header of that tag; heartbeats and such may come before it."""
        while self._socket.poll(10_000):
            route, header = self._socket.recv_multipart()[:2]
            message: list[object] = msgspec.msgpack.decode(header)
            if message[0] == tag:
                return route, message
        raise AssertionError(f"no {tag} came")


@pytest.fixture
def router(endpoint: str) -> Iterator[Router]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    yield Router(socket)
    socket.close(0)
    context.term()


@pytest.fixture
def quick() -> Limits:
    return Limits(heartbeat_s=0.1, silence_s=1.0, stuck_s=0.5)


@pytest.fixture
def wait_until() -> WaitUntil:
    def wait(condition: Callable[[], object], what: str = "", timeout: float = 15.0) -> None:
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
