"""Of those that come from the network, who goes too far is put out by itself, and nobody for another."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Actor, Learner, Limits
from gpusched.channel.messages import GetWeights
from gpusched.joining.keys import read_join_key, revoke
from tests.channel.conftest import ANYWHERE, MakeDealer, WaitUntil, network, turned_away
from tests.patience import PATIENCE_S

ONE = {"x": np.zeros(1, np.uint8)}
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)


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
    assert learner._authenticator is not None
    authenticator, key = learner._authenticator, read_join_key(keys / "lab.key")
    peer = dealer(network(learner), key)
    wait_until(lambda: authenticator.lets_in(key.public))
    [connection] = authenticator._connections._by_descriptor.values()
    revoke(keys, "lab")
    wait_until(lambda: not authenticator.lets_in(key.public))
    assert not connection.shut, "it may be anybody's"
    peer.greet("actor.0@lab")
    wait_until(lambda: connection.shut)


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


def test_those_that_show_no_key_are_cut_when_they_send_more_than_handshakes_take(
    endpoint: str, keys: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._HANDSHAKES", 0)
    limits = Limits(max_remote=64 << 10)
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=limits) as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as honest,
    ):
        assert honest.send(ONE, timeout=PATIENCE_S)
        host, _, port = network(learner).removeprefix("tcp://").rpartition(":")
        flood = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(6)]
        for each in flood:
            each.sendall(GREETING)
            each.sendall(b"\x06" + (60_000).to_bytes(8, "big") + bytes(59_000))  # the most of a command, but its end
        wait_until(lambda: turned_away(caplog))
        assert turned_away(caplog) == [
            "turned away 127.0.0.1: those that have shown no key yet have sent more than handshakes take"
        ]
        assert honest.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        for each in flood:
            each.close()


def test_a_key_has_no_more_connections_than_it_may_and_the_oldest_stay(
    learner: Learner,
    keys: Path,
    dealer: MakeDealer,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._MOST_OF_A_KEY", 1)
    first = dealer(network(learner), read_join_key(keys / "lab.key"))
    first.greet("actor.0@lab")
    first.hear("welcome")
    second = dealer(network(learner), read_join_key(keys / "lab.key"))
    second.greet("actor.1@lab")
    wait_until(lambda: turned_away(caplog) == ["turned away 127.0.0.1: its key has more than 1 connections"])
    second.socket.close(0)
    first.say(GetWeights(0))
    with Actor(network(learner), keys=keys / "other.key", name="actor.0@other") as other:
        assert other.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
    assert [each.connected for each in learner.actors if each.name == "actor.0@lab"] == [True]
