"""Of those that come from the network, who goes too far is put out by itself, and nobody for another."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zmq

from gpusched.channel import Actor, Learner, Limits
from gpusched.channel.messages import PROTOCOL, Hello, Ping, encode_header
from gpusched.channel.remote.connections import _received
from gpusched.joining.keys import read_join_key, revoke
from tests.channel.conftest import ANYWHERE, Dealer, MakeDealer, WaitUntil, network, turned_away
from tests.channel.curve import GREETING, Client
from tests.patience import PATIENCE_S

ONE = {"x": np.zeros(1, np.uint8)}
HELLO = encode_header(Hello(PROTOCOL, "actor.0@lab", 0, "nonce", 1, "", 0, ""))


@pytest.fixture(autouse=True)
def _strangers_answer_no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.learner_thread._FAREWELL_S", 0.2)


@pytest.fixture
def learner(endpoint: str, keys: Path) -> Iterator[Learner]:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=Limits(heartbeat_s=0.2)) as learner:
        yield learner


def test_who_says_the_first_word_after_the_key_was_revoked_is_put_out(
    learner: Learner, keys: Path, dealer: MakeDealer, wait_until: WaitUntil
) -> None:
    assert learner._gate is not None
    gate, key = learner._gate, read_join_key(keys / "lab.key")
    peer = dealer(network(learner), key)
    wait_until(lambda: gate.lets_in(key.public))
    [connection] = gate._connections._by_descriptor.values()
    revoke(keys, "lab")
    wait_until(lambda: not gate.lets_in(key.public))
    assert not connection.shut, "it may be anybody's"
    peer.greet("actor.0@lab")
    wait_until(lambda: connection.shut)


def test_what_comes_late_of_a_connection_is_not_counted_to_who_has_its_descriptor_now(
    learner: Learner, keys: Path, dealer: MakeDealer, wait_until: WaitUntil
) -> None:
    assert learner._gate is not None
    connected = learner._gate._connections._by_descriptor
    first = dealer(network(learner), read_join_key(keys / "lab.key"))
    first.greet("actor.0@lab")
    first.hear("welcome")
    [descriptor] = connected
    others: list[Dealer] = []
    with learner._loop._lock:  # it reads nothing now
        first.socket.setsockopt(zmq.LINGER, 10_000)
        for _ in range(20):
            first.say(Ping(0, inside=False))
        first.socket.close()
        wait_until(lambda: not connected)
        while descriptor not in connected:
            assert len(others) < 20, "none has the descriptor again"
            others.append(dealer(network(learner), read_join_key(keys / "other.key")))
            wait_until(lambda: len(connected) == len(others))
    others[-1].greet("actor.0@other")
    others[-1].hear("welcome")
    assert connected[descriptor].user == read_join_key(keys / "other.key").public
    assert 0 < connected[descriptor].taken < 500, "its own word, and not twenty of the other's"


def test_an_address_that_has_many_silent_connections_is_in_the_way_of_its_own(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._MOST_SILENT", 5)
    host, _, port = network(learner).removeprefix("tcp://").rpartition(":")
    where = (host, int(port))
    slow = [
        socket.create_connection(where, timeout=PATIENCE_S, source_address=(f"127.0.0.{number}", 0))
        for number in (2, 3)
    ]
    many = [socket.create_connection(where, timeout=PATIENCE_S) for _ in range(20)]
    for each in many[:14]:
        with suppress(ConnectionResetError):
            while each.recv(1000):  # to its end, which those that gave way have come to
                continue
    for each in slow:
        each.sendall(GREETING)
        with each.makefile("rb") as answer:
            assert len(answer.read(64)) == 64
    for each in (*slow, *many):
        each.close()
    assert turned_away(caplog)[:1] == ["turned away 127.0.0.1: more than 5 connections send nothing"]


def test_who_sends_too_much_again_and_again_is_named_once(
    endpoint: str,
    keys: Path,
    dealer: MakeDealer,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._KERNEL_KEEPS", 1 << 20)
    monkeypatch.setattr("gpusched.channel.remote.authentication._CHECK_S", 3600.0)
    monkeypatch.setattr("gpusched.channel.remote.authentication._CHECK_OFTEN_S", 3600.0)
    limits = Limits(max_remote=64 << 10)
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=limits) as learner:
        gate = learner._gate
        assert gate is not None
        for number in (40, 80):
            peer = dealer(network(learner), read_join_key(keys / "lab.key"))
            peer.greet("actor.0@lab")
            peer.hear("welcome")
            [connection] = gate._connections._by_descriptor.values()
            with learner._loop._lock:  # it reads nothing now
                peer.socket.send_multipart([bytes(60_000)] * number)
                wait_until(lambda got=connection, least=number * 60_000: _received(got.socket) > least)
                gate._check_at = 0.0  # it looks now
                gate._wake.set()
                wait_until(lambda got=connection: got.shut)
            peer.socket.close(0)
            wait_until(lambda: not len(gate._connections))
    assert turned_away(caplog) == ["turned away 127.0.0.1: it sent over 1 MiB more than can be read of it"]


@pytest.mark.parametrize(
    ("length", "why"),
    [(300, "it calls itself by a name of over 255 bytes"), (100_000, "it sent more than a handshake takes")],
)
def test_who_calls_itself_by_a_long_name_is_put_out(
    length: int, why: str, learner: Learner, keys: Path, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = Client(network(learner), read_join_key(keys / "lab.key"), b"x" * length)
    with suppress(ConnectionError):  # it is cut in the handshake
        hostile.say(HELLO)
    assert hostile.ended()
    hostile.close()
    wait_until(lambda: turned_away(caplog) == [f"turned away 127.0.0.1: {why}"])
    assert learner.actors == ()
    with Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as actor:
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


def test_who_calls_itself_by_a_short_name_is_heard(learner: Learner, keys: Path, wait_until: WaitUntil) -> None:
    peer = Client(network(learner), read_join_key(keys / "lab.key"), b"x" * 255)
    peer.say(HELLO)
    wait_until(lambda: [each.name for each in learner.actors] == ["actor.0@lab"])
    peer.close()
