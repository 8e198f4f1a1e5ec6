"""Peers of the control socket that mean harm: whatever they do, the next honest question is answered at once."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from bench.host import cpu_s
from gpusched.control.client import Client, control_socket
from gpusched.control.codec import encode
from gpusched.control.messages import PROTOCOL, ListJobs, Ping, Submit
from tests.daemon.daemons import Daemon
from tests.daemon.test_control import resident_mib
from tests.patience import until

AT_ONCE_S = 0.1
LIMIT = 1024


@contextmanager
def peer(daemon: Daemon) -> Iterator[Any]:
    """One that takes as good as no answers."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as one:
        one.linger = 0
        one.sndhwm, one.rcvhwm = 0, 1
        one.connect(f"ipc://{control_socket(daemon.settings)}")
        yield one


def assert_answers_at_once(daemon: Daemon) -> None:
    """Of a few questions one is answered before the daemon has done much else, in CPU time: the host may be busy."""

    def seconds() -> float:
        before = cpu_s(daemon.pid)
        with Client(daemon.settings) as client:
            client.ask(Ping())
        return cpu_s(daemon.pid) - before

    taken = [seconds() for _ in range(5)]
    assert min(taken) < AT_ONCE_S, taken


@pytest.fixture
def usual_limit() -> Iterator[int]:
    """As in a shell: programs begin with so many open files, and may ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connections(path: Path, count: int, stack: ExitStack) -> None:
    """Connect so often, and say nothing."""
    for _ in range(count):
        one = stack.enter_context(socket.socket(socket.AF_UNIX))
        one.setblocking(False)
        until(lambda one=one: one.connect_ex(str(path)) == 0, "the daemon lets one in")  # type: ignore[misc]


def test_thousands_of_connections_that_say_nothing_end_nothing_and_are_let_go(daemon: Daemon, usual_limit: int) -> None:
    if usual_limit < 4 * LIMIT:
        pytest.skip(f"at most {usual_limit} open files are allowed here")
    daemon.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual_limit, usual_limit))
    descriptors = Path(f"/proc/{daemon.pid}/fd")
    before = len(list(descriptors.iterdir()))
    with ExitStack() as stack:
        connections(control_socket(daemon.settings), 2 * LIMIT, stack)
        assert_answers_at_once(daemon)
        until(lambda: len(list(descriptors.iterdir())) <= before + 1, "those that say nothing are let go")
    (job,) = daemon.ended(daemon.shell(f"ulimit -S -n; [ $(ulimit -S -n) = {LIMIT} ]"))
    told = f"{job.message}: {(Path(job.run_dir) / 'logs' / 'command.0.log').read_text()}"
    assert job.state == "succeeded", f"a job has the limit that the daemon was started with: {told}"


def test_who_asks_without_end_and_takes_no_answer_holds_up_nobody(daemon: Daemon) -> None:
    daemon.start()
    with daemon.client() as client:
        for _ in range(300):
            client.ask(Submit(job=daemon.submission("true", hold=True)))
    before = resident_mib(daemon.pid)
    with peer(daemon) as one:
        for number in range(2000):
            one.send_multipart([bytes([PROTOCOL]), number.to_bytes(8, "big"), encode(ListJobs())])
        assert_answers_at_once(daemon)
        assert_answers_at_once(daemon)
        assert resident_mib(daemon.pid) - before < 60
    assert daemon.pong().malformed == 0


def test_a_message_that_never_ends_holds_up_nobody(daemon: Daemon) -> None:
    daemon.start()
    with peer(daemon) as one:
        for size in (*[10] * 1000, *[1 << 20] * 10):
            one.send(bytes(size), zmq.SNDMORE)
        assert_answers_at_once(daemon)
        one.send(b"")
        until(lambda: daemon.pong().malformed == 1, "it is dropped when it has come")
        assert_answers_at_once(daemon)
