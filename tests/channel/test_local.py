"""The socket of one host: whole messages, whatever comes beside them, and back again when the learner is."""

import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.channel import Actor, Learner, Limits
from gpusched.channel.local import LocalClient, LocalServer
from gpusched.channel.stream import Connection, _prefix
from gpusched.channel.transport import queue_length
from tests.channel.conftest import Stranger, WaitUntil, next_of
from tests.patience import PATIENCE_S, until

ONE = {"x": np.zeros(1, np.uint8)}
MAGIC = int.from_bytes(b"gpu1", "little")
SMALL = Limits(max_message=1 << 20)


def path_of(endpoint: str) -> str:
    return endpoint.removeprefix("ipc://")


def connected(endpoint: str) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(PATIENCE_S)
    raw.connect(path_of(endpoint))
    return raw


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    one, other = socket.socketpair()
    for each in (one, other):
        each.setblocking(False)
    with select.epoll() as events:
        yield Connection(one, SMALL, events), Connection(other, SMALL, events)
    one.close()
    other.close()


@pytest.mark.parametrize("asks_drained", [True, False], ids=["unless it is drained", "always"])
@given(st.lists(st.lists(st.binary(max_size=70_000), min_size=1, max_size=5), max_size=8), st.data())
def test_messages_come_whole_and_in_order_however_the_stream_is_cut(
    asks_drained: bool, messages: list[list[bytes]], data: st.DataObject
) -> None:
    one, other = socket.socketpair()
    with one, other, select.epoll() as events:
        other.setblocking(False)
        stream = b"".join(
            _prefix(len(each)).pack(MAGIC, len(each), *map(len, each)) + b"".join(each) for each in messages
        )
        receiving, came = Connection(other, SMALL, events), []
        while stream:
            count = data.draw(st.integers(1, min(len(stream), 100_000)))
            one.sendall(stream[:count])
            stream = stream[count:]
            while events.poll(0):
                while not (asks_drained and receiving.drained()) and (parts := receiving.receive()) is not None:
                    came.append([bytes(part) for part in parts])
        assert came == messages


def test_what_the_other_side_does_not_read_waits_in_order_and_is_bounded(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    sent = 0
    while sender.send([sent.to_bytes(4, "little"), bytes(50_000)]):
        sent += 1
    assert sent >= queue_length(SMALL)
    assert sender.waits
    came: list[int] = []
    while len(came) < sent:
        parts = receiver.receive()
        if parts is not None:
            came.append(int.from_bytes(parts[0], "little"))
        sender.flush()
    assert came == [*range(sent)]
    assert not sender.waits


@pytest.mark.parametrize(
    "stream",
    [
        b"\xff" + bytes(8) + b"\x7f\x03\x01",  # how ZeroMQ begins, and so an older gpusched
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<II", MAGIC, 0),
        struct.pack("<II", MAGIC, 258),
        struct.pack("<IIQ", MAGIC, 1, 1 << 62),
        struct.pack("<IIQQ", MAGIC, 2, 1 << 63, 1 << 63),
    ],
    ids=["zeromq", "http", "no part", "too many parts", "a huge part", "parts that overflow together"],
)
def test_what_is_no_message_ends_that_connection_only(
    endpoint: str, stream: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="honest") as honest:
        for _ in range(3):
            with connected(endpoint) as raw:
                raw.sendall(stream)
                with suppress(ConnectionResetError):
                    assert raw.recv(1) == b""
        assert honest.send(ONE, timeout=PATIENCE_S)
        found = learner.get(timeout=PATIENCE_S)
        assert found is not None
        assert found.actor == "honest"
    assert len([record for record in caplog.records if "was turned away" in record.getMessage()]) == 1


def test_half_a_message_holds_nobody_up(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as honest, connected(endpoint) as raw:
        raw.sendall(struct.pack("<IIQ", MAGIC, 1, 1000) + b"only this")
        for _ in range(3):
            assert honest.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None


def test_a_learner_that_comes_back_finds_its_actor_within_a_moment(endpoint: str) -> None:
    calm = Limits(heartbeat_s=600, silence_s=3000)  # no heartbeat brings it about
    with Actor(endpoint, limits=calm) as actor:
        for _ in range(3):
            learner = Learner(endpoint, limits=calm)
            assert actor.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None
            learner.close(over=False)


def test_what_no_learner_could_get_any_more_goes_to_the_next_one(endpoint: str) -> None:
    calm = Limits(heartbeat_s=600, silence_s=3000)
    with Actor(endpoint, limits=calm) as actor:
        first = Learner(endpoint, limits=calm)
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert first.get(timeout=PATIENCE_S) is not None
        with actor._loop.changed:  # meanwhile its thread cannot take note that the connection has ended
            first.close(over=False)
            second = Learner(endpoint, limits=calm)
            assert actor.send(ONE, timeout=PATIENCE_S)
        with second:
            assert second.get(timeout=PATIENCE_S) is not None


def test_a_client_does_not_take_a_message_for_a_learner_that_has_ended(endpoint: str) -> None:
    server, client = LocalServer(Path(path_of(endpoint)), SMALL), LocalClient(Path(path_of(endpoint)), SMALL)
    assert client.send(0, [b"hello"])
    hello = next_of(server)
    assert hello is not None
    assert server.send(hello.route, [b"before the end"])
    server.close()
    assert not client.send(0, [b"too late"])
    assert not client.writable()
    last = client.receive()
    assert last is not None
    assert bytes(last.header) == b"before the end"
    assert client.receive() is client.receive() is None
    assert client.broken()
    client.close()


def test_an_actor_that_waits_learns_at_once_that_the_learner_is_back(endpoint: str) -> None:
    calm = Limits(heartbeat_s=600, silence_s=3000)
    with Actor(endpoint, limits=calm) as actor:
        first = Learner(endpoint, limits=calm)
        first.publish(ONE)
        assert actor.weights(timeout=PATIENCE_S) is not None
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(actor.weights(newer_than=1, timeout=PATIENCE_S)))
        waiting.start()
        first.close(over=False)
        with Learner(endpoint, limits=calm) as second:
            second.publish(ONE)
            waiting.join(PATIENCE_S)
        assert found[0] is not None


def test_a_learner_of_an_older_gpusched_is_told_of_and_not_asked_without_pause(
    endpoint: str, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path_of(endpoint))
        door.listen()
        with Actor(endpoint, limits=Limits(heartbeat_s=0.01, silence_s=1)):
            stranger, _ = door.accept()
            with stranger:
                stranger.sendall(b"\xff" + bytes(8) + b"\x7f")
                wait_until(lambda: any("no message of a learner's" in record.getMessage() for record in caplog.records))
                before = time.process_time()
                time.sleep(0.5)
                assert time.process_time() - before < 0.25, "it pauses between tries"


def test_no_room_for_another_connection_is_waited_for_without_a_loop(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LocalServer(Path(path_of(endpoint)), Limits())

    class Full:
        def __init__(self, door: socket.socket) -> None:
            self.door, self.asked, self.full = door, 0, True

        def fileno(self) -> int:
            return self.door.fileno()

        def shutdown(self, how: int) -> None:
            self.door.shutdown(how)

        def close(self) -> None:
            self.door.close()

        def accept(self) -> Any:
            self.asked += 1
            if self.full:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.door.accept()

    full = Full(server._door)
    monkeypatch.setattr(server, "_door", full)
    client = LocalClient(Path(path_of(endpoint)), Limits())
    assert client.send(0, [b"hello"])
    with monkeypatch.context() as slow:
        slow.setattr("gpusched.channel.local._LATEST_S", 3.0)  # more than a busy host takes for these
        for _ in range(100):
            assert server.receive() is None
    assert full.asked == 1
    full.full = False
    received = next_of_both(server)
    assert received == b"hello"
    client.close()
    server.close()


def next_of_both(server: LocalServer) -> bytes:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        received = server.receive()
        if received is not None:
            return bytes(received.header)
        time.sleep(0.01)
    raise AssertionError("nothing came")


def is_empty(side: LocalServer | LocalClient) -> bool:
    return side.receive() is None and not select.select([side.descriptor], [], [], 0)[0]


def test_a_socket_that_has_room_again_is_not_reported_for_ever(endpoint: str) -> None:
    """Else the channel's thread would go round and round."""
    server = LocalServer(Path(path_of(endpoint)), Limits())
    client = LocalClient(Path(path_of(endpoint)), Limits())
    assert client.send(0, [b"begin"])
    first = next_of(server)
    assert first is not None
    while client.send(0, [bytes(50_000)]):
        pass
    while server.send(first.route, [bytes(50_000)]):
        pass
    connections = [server._routes[1], client._connection]
    sides: list[LocalServer | LocalClient] = [server, client]
    for side, peer, route, connection in zip(sides, sides[::-1], (1, 0), connections, strict=True):
        assert connection is not None
        while connection.waits:
            assert next_of(peer) is not None
            side.send(route, [b"more"])
        until(lambda peer=peer: is_empty(peer), "all is read")  # type: ignore[misc]
    for side in (server, client):
        assert not select.select([side.descriptor], [], [], 0)[0]
    client.close()
    server.close()


@pytest.fixture
def server(endpoint: str) -> Iterator[LocalServer]:
    found = LocalServer(Path(path_of(endpoint)), Limits())
    yield found
    found.close()


def test_where_too_many_messages_wait_there_is_no_room(endpoint: str, server: LocalServer) -> None:
    """Else an actor would try for ever, with its lock held."""
    stranger = Stranger(endpoint)
    stranger.say(b"begin")
    assert stranger.socket.writable()
    while stranger.socket.send(0, [bytes(50_000)]):
        pass
    assert not stranger.socket.writable()

    def has_room_again() -> bool:
        server.receive()
        stranger.socket.receive()
        return stranger.socket.writable()

    until(has_room_again, "what waited is read")
    stranger.socket.close()


def test_a_connection_ends_for_both_sides_though_a_forked_process_has_it(endpoint: str, server: LocalServer) -> None:
    stranger = Stranger(endpoint)
    stranger.say(b"begin")
    assert next_of(server) is not None
    theirs = server._routes[1].stream.dup()
    assert stranger.socket._connection is not None
    with theirs, stranger.socket._connection.stream.dup():
        stranger.socket.close()
        until(lambda: server.receive() is None and not server._routes, "the end is seen")
        assert not select.select([server.descriptor], [], [], 0)[0]


@pytest.mark.parametrize(("step", "next_one"), [("receive", b"b"), ("drained", b"c")])
def test_after_a_signal_between_messages_the_next_one_is_read(
    endpoint: str, server: LocalServer, monkeypatch: pytest.MonkeyPatch, step: str, next_one: bytes
) -> None:
    def raises(_: Connection) -> None:
        raise KeyboardInterrupt

    with connected(endpoint) as raw:
        raw.sendall(b"".join(_prefix(1).pack(MAGIC, 1, 1) + each for each in (b"a", b"b", b"c")))
        first = next_of(server)
        assert first is not None
        assert bytes(first.header) == b"a"
        with monkeypatch.context() as patch:
            patch.setattr(Connection, step, raises)
            with pytest.raises(KeyboardInterrupt):
                server.receive()
        received = server.receive()
        assert received is not None, "nothing more comes: it would wait for the peer's next message"
        assert bytes(received.header) == next_one
    until(lambda: server.receive() is None and not server._routes, "the end is seen")


def test_one_that_sends_without_end_does_not_keep_the_others_waiting(endpoint: str, server: LocalServer) -> None:
    with connected(endpoint) as flood:
        flood.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                flood.sendall(_prefix(1).pack(MAGIC, 1, 1) + b"x")
        first = server.receive() or next_of(server)
        assert first is not None
        stranger = Stranger(endpoint)
        stranger.say(b"honest")
        came = [received for _ in range(40) if (received := server.receive()) is not None]
        assert b"honest" in [bytes(received.header) for received in came]
        stranger.socket.close()


def test_what_came_before_the_end_is_received_also_after_an_answer_that_nobody_gets(
    endpoint: str, server: LocalServer
) -> None:
    stranger = Stranger(endpoint)
    stranger.say(b"first")
    first = next_of(server)
    assert first is not None
    stranger.say(b"last")
    stranger.socket.close()
    for _ in range(2):
        assert server.send(first.route, [b"answer"])
    last = next_of(server)
    assert last is not None
    assert bytes(last.header) == b"last"
    until(lambda: server.receive() is None and not server._routes, "the end is seen")
    assert not server.send(first.route, [b"answer"])


def test_questions_give_their_credit_back_before_they_are_answered(endpoint: str) -> None:
    calm = Limits(heartbeat_s=600, silence_s=3000)  # no heartbeat brings it about
    with Learner(endpoint, limits=calm) as learner, Actor(endpoint, limits=calm) as actor:
        asked = threading.Thread(target=lambda: [actor.ask(ONE) for _ in range(6)])
        asked.start()
        assert [learner.get(timeout=PATIENCE_S) is not None for _ in range(6)] == [True] * 6
        asked.join(PATIENCE_S)


def test_an_answer_for_who_left_is_refused_and_the_others_get_theirs(endpoint: str) -> None:
    server = LocalServer(Path(path_of(endpoint)), Limits())
    gone, there = Stranger(endpoint), Stranger(endpoint)
    gone.say(b"1")
    there.say(b"2")
    first, second = next_of(server), next_of(server)
    assert first is not None
    assert second is not None
    gone.socket.close()
    until(lambda: server.receive() is None and len(server._routes) == 1, "the end is seen")
    assert not server.send(first.route, [b"to nobody"])
    assert server.send(second.route, [b"to you"])
    answer = next_of(there.socket)
    assert answer is not None
    assert bytes(answer.header) == b"to you"
    assert not server.send(b"a route of the network", [b""])
    there.socket.close()
    server.close()


def test_neither_side_of_one_host_loads_zeromq(endpoint: str, start: Callable[..., Any]) -> None:
    """It takes 15 ms and two threads in each of 33 processes."""
    child = start("imports", endpoint)
    assert child.stdout is not None
    assert child.stdout.read() == "False\n"
