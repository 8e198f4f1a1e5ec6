"""Nobody comes in from the network but who has a key that is good now; whoever is turned away is named, once."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq

from gpusched.channel import Actor, ChannelError, Learner, Limits
from gpusched.channel.messages import (
    PROTOCOL,
    ArraySpec,
    BatchHeader,
    GetWeights,
    Hello,
    encode_header,
)
from gpusched.channel.remote.authentication import ZapAuthenticator
from gpusched.errors import UsageError
from gpusched.joining.keys import (
    AllowList,
    JoinKey,
    make_server_key,
    new_key,
    read_join_key,
    revoke,
    secure_client,
)
from tests.channel.conftest import ANYWHERE, Dealer, MakeDealer, Relay, Stranger, WaitUntil, network, turned_away
from tests.patience import PATIENCE_S

ONE = {"x": np.zeros(1, np.uint8)}
WEIGHTS = {"w": np.frombuffer(b"these are the weights " * 10_000, np.uint8)}
MakeRelay = Callable[[str], Relay]


@pytest.fixture(autouse=True)
def _strangers_answer_no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.learner_thread._FAREWELL_S", 0.2)


@pytest.fixture
def learner(endpoint: str, keys: Path) -> Iterator[Learner]:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=Limits(heartbeat_s=0.2)) as learner:
        yield learner


def intruder(kind: str, keys: Path, elsewhere: Path) -> JoinKey | None:
    """Return what one has who must not get in."""
    good = read_join_key(keys / "lab.key")
    make_server_key(elsewhere, "job-2")
    stranger = read_join_key(new_key(elsewhere, "stranger"))
    if kind == "no key":
        return None
    if kind == "another server's key":
        return stranger
    if kind == "revoked":
        revoke(keys, "lab")
        return good
    return msgspec.structs.replace(stranger, server=good.server)  # the server's key is public, and so may be known


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no key", "it showed no key"),
        ("another server's key", "its key is for another learner"),
        ("unlisted", "its key is not listed"),
        ("revoked", "its key 'lab' was revoked"),
    ],
)
def test_who_has_no_good_key_gets_nothing_and_is_named_once(  # noqa: PLR0917 (fixtures)
    kind: str,
    why: str,
    learner: Learner,
    keys: Path,
    directory: Path,
    dealer: MakeDealer,
    relay: MakeRelay,
    caplog: pytest.LogCaptureFixture,
    wait_until: WaitUntil,
) -> None:
    learner.publish(WEIGHTS)
    between = relay(network(learner))
    key = intruder(kind, keys, directory / "elsewhere")
    for _ in range(3):
        peer = dealer(between.endpoint, key)
        peer.greet("actor.0@lab")
        peer.say(GetWeights(0))
        tried = between.ended
        wait_until(lambda tried=tried: between.ended > tried)
        assert peer.socket.poll(0) == 0
        peer.socket.close(0)
    wait_until(lambda: turned_away(caplog), "it is named")
    assert sum(map(len, between.down)) < 1000 * between.ended < WEIGHTS["w"].nbytes
    told = [line for line in turned_away(caplog) if line.startswith(f"turned away 127.0.0.1: {why}")]
    assert len(told) == 1
    others = [line for line in turned_away(caplog) if line not in told]
    assert all(line.endswith("it showed no key") for line in others), "one that was closed amid its next handshake"
    assert learner.actors == ()
    assert learner.dropped == {}


def test_what_goes_over_the_network_says_nothing_to_who_listens(learner: Learner, keys: Path, relay: MakeRelay) -> None:
    learner.publish(WEIGHTS)
    between = relay(network(learner))
    with Actor(between.endpoint, keys=keys / "lab.key", name="actor.0@lab") as actor:
        assert actor.weights(timeout=PATIENCE_S) is not None
        assert actor.send({"x": WEIGHTS["w"]}, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
    for seen in (b"".join(between.down), b"".join(between.up)):
        assert len(seen) > WEIGHTS["w"].nbytes
        assert b"these are the weights" not in seen
        assert b"actor.0" not in seen


def test_who_is_in_when_the_key_is_revoked_is_put_out(
    learner: Learner, keys: Path, dealer: MakeDealer, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    learner.publish(ONE)
    peer = dealer(network(learner), read_join_key(keys / "lab.key"))
    peer.greet("actor.9@lab")
    peer.hear("welcome")
    with (
        Actor(network(learner), keys=keys / "other.key", name="actor.0@other") as stays,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as goes,
    ):
        assert goes.weights(timeout=PATIENCE_S) is not None
        revoke(keys, "lab")
        with pytest.raises(ChannelError, match=r"does not let in actor.0@lab: the key 'lab' was revoked"):
            goes.weights(newer_than=1, timeout=PATIENCE_S)
        wait_until(lambda: not any(each.connected for each in learner.actors if each.name.endswith("@lab")))
        learner.publish(WEIGHTS)
        with suppress(zmq.Again):  # it may have nobody to say it to
            peer.socket.send(encode_header(GetWeights(0)), zmq.NOBLOCK)
        found = stays.weights(newer_than=1, timeout=PATIENCE_S)
        assert found is not None
        heard = []
        while peer.socket.poll(200):
            heard.append(peer.socket.recv_multipart())
        assert not [parts for parts in heard if len(parts) > 1], "weights have frames"
    assert len([each for each in caplog.records if "cut the connections with the key 'lab'" in each.getMessage()]) == 1


def test_without_its_thread_the_gate_lets_nobody_in(
    learner: Learner,
    endpoint: str,
    keys: Path,
    dealer: MakeDealer,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    learner.publish(ONE)
    key = read_join_key(keys / "lab.key")
    before = dealer(network(learner), key)
    before.greet("actor.1@lab")
    before.hear("welcome")
    monkeypatch.setattr(AllowList, "name_of", fail)
    wait_until(lambda: "the authenticator's thread ended" in caplog.text)
    monkeypatch.undo()
    after = dealer(network(learner), key)
    after.greet("actor.2@lab")
    before.say(GetWeights(0))
    with Actor(endpoint, name="actor.0") as local:
        assert local.weights(timeout=PATIENCE_S) is not None
        assert local.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
    assert after.socket.poll(1000) == 0
    assert [each.name for each in learner.actors] == ["actor.1@lab", "actor.0"]
    while before.socket.poll(0):
        assert len(before.socket.recv_multipart()) == 1, "no weights"


@pytest.mark.parametrize(
    ("key", "name", "why"),
    [
        ("other", "actor.3@lab", "the host lab has another key"),
        ("other", "actor.0", "with a key, a name has its host"),
        (None, "actor.3@lab", "a name on another host takes a key"),
        (None, "actor.3@new", "a name on another host takes a key"),
    ],
)
def test_no_peer_takes_the_place_of_another(
    key: str | None, name: str, why: str, learner: Learner, endpoint: str, keys: Path, dealer: MakeDealer
) -> None:
    with (
        Actor(endpoint, name="actor.0") as local,
        Actor(network(learner), keys=keys / "lab.key", name="actor.3@lab") as remote,
    ):
        for actor in (local, remote):
            assert actor.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None, "the name is its actor's from now on"
        if key is None:
            thief: Stranger | Dealer = Stranger(endpoint)
        else:
            thief = dealer(network(learner), read_join_key(keys / f"{key}.key"))
        thief.greet(name)
        refused = thief.hear("refused")
        assert refused[1] == "identity"
        assert why in str(refused[2])
        thief.say(BatchHeader(7, 0, (ArraySpec("x", "|u1", (1,)),), {}), b"1")
        thief.hear("who-are-you")
        for actor in (local, remote):
            assert actor.send(ONE, timeout=PATIENCE_S)
        assert {batch.actor for _ in range(2) if (batch := learner.get(timeout=PATIENCE_S))} == {
            "actor.0",
            "actor.3@lab",
        }
        assert learner.get(timeout=0) is None


def test_a_route_that_was_anothers_is_of_no_use_with_another_key(
    learner: Learner, keys: Path, wait_until: WaitUntil
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for name, said in (("lab", "welcome"), ("other", "who-are-you")):
            peer = context.socket(zmq.DEALER)
            peer.setsockopt(zmq.ROUTING_ID, b"chosen")
            secure_client(peer, read_join_key(keys / f"{name}.key"))
            peer.connect(network(learner))
            if name == "lab":
                peer.send(encode_header(Hello(PROTOCOL, "actor.0@lab", 0, "nonce", 1, "", 0, "")))
            else:
                peer.send(encode_header(BatchHeader(1, 0, (), {})))
            answer = "news"  # a heartbeat for who had the route before
            while answer == "news":
                assert peer.poll(1000 * int(PATIENCE_S))
                answer = msgspec.msgpack.decode(peer.recv_multipart()[0])[0]
            assert answer == said
            assert isinstance(learner._authenticator, ZapAuthenticator)
            peer.close(0)
            wait_until(lambda: len(learner._authenticator._connections) == 0)
    finally:
        context.destroy(linger=0)


def test_who_connects_and_says_nothing_does_not_stay(
    learner: Learner,
    keys: Path,
    dealer: MakeDealer,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._FIRST_WORD_S", 0.3)
    silent = dealer(network(learner), read_join_key(keys / "lab.key"))
    host, _, port = network(learner).removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionResetError):
            while raw.recv(1000):
                continue
    wait_until(lambda: any("sent nothing" in told for told in turned_away(caplog)))
    silent.socket.close(0)


def test_of_many_who_say_nothing_the_oldest_give_way_to_who_speaks(
    learner: Learner, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusched.channel.remote.connections._MOST_SILENT", 5)
    host, _, port = network(learner).removeprefix("tcp://").rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(20)]
    with Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as actor:
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
    for each in silent[:14]:
        with suppress(ConnectionResetError):
            while each.recv(1000):  # to its end, which those that gave way have come to
                continue
    for each in silent:
        each.close()


def test_a_batch_from_another_host_is_bounded_where_it_is_sent(endpoint: str, keys: Path) -> None:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=Limits(max_remote=1 << 20)) as learner:
        learner.publish({"w": np.zeros(3 << 20, np.uint8)})
        with Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as actor:
            assert actor.weights(timeout=PATIENCE_S) is not None
            with pytest.raises(UsageError, match="over the 1048576 allowed"):
                actor.send({"x": np.zeros(2 << 20, np.uint8)}, timeout=PATIENCE_S)
            assert actor.send({"x": np.zeros(1 << 20, np.uint8)}, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None


def test_a_key_in_the_wrong_place_is_told_at_once(keys: Path, directory: Path) -> None:
    endpoint = f"ipc://{directory}/job.sock"
    with pytest.raises(UsageError, match="stays on one host"):
        Learner(endpoint, listen="tcp://0.0.0.0:0")
    with pytest.raises(UsageError, match="no key file"):
        Learner(endpoint, listen=ANYWHERE, keys=keys / "lab.key")
    with pytest.raises(UsageError, match="stays on one host"):
        Actor("tcp://192.0.2.1:5")
    with pytest.raises(UsageError, match="no key file"):
        Actor("tcp://192.0.2.1:5", keys=keys / "server.key")
    assert not list(directory.glob("job.sock*"))


def test_nothing_that_is_logged_holds_a_secret(
    learner: Learner, keys: Path, dealer: MakeDealer, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    key = read_join_key(keys / "lab.key")
    caplog.set_level(logging.DEBUG)
    revoke(keys, "lab")
    peer = dealer(network(learner), key)
    peer.greet("actor.0@lab")
    wait_until(lambda: turned_away(caplog))
    peer.socket.close(0)
    assert key.secret not in caplog.text
    assert key.secret not in repr((key, learner, learner._authenticator))
