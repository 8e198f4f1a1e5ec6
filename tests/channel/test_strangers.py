"""Garbage from one peer is dropped, counted, logged once and answered; honest peers notice nothing."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest

from gpusched.channel import Actor, Learner, Limits
from gpusched.channel.actor_protocol import ActorProtocol
from gpusched.channel.messages import (
    PROTOCOL,
    ArraySpec,
    BatchHeader,
    Hello,
    Ping,
    Welcome,
    WhoAreYou,
    encode_header,
)
from gpusched.channel.values import Speaker
from gpusched.errors import ProtocolError
from tests.channel.conftest import Router, Stranger
from tests.patience import PATIENCE_S, until

HELLO = Hello(PROTOCOL, "stranger", 0, "nonce", 1, "", 0, "")
ONE = {"x": np.zeros(1, np.uint8)}


@pytest.fixture(autouse=True)
def _strangers_answer_no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.learner_thread._FAREWELL_S", 0.2)


@pytest.fixture
def stranger(endpoint: str) -> Iterator[Stranger]:
    stranger = Stranger(endpoint)
    yield stranger
    stranger.socket.close()


def batch(seq: int, *arrays: ArraySpec) -> bytes:
    return encode_header(BatchHeader(seq, 0, arrays, {}))


@pytest.mark.parametrize(
    ("parts", "kind", "reason"),
    [
        ([b"\xff" * 100], "header", "cannot be read"),
        ([b""], "header", "cannot be read"),
        ([b"x" * (65 << 10)], "header", "over the 65536"),
        ([b"x"] * 257, "header", "cannot be read"),
        ([batch(1, ArraySpec("x", "<f8", (1 << 62, 1 << 62)))], "arrays", "0 arrays came"),
        ([batch(1, ArraySpec("x", "<f8", (1 << 62, 1 << 62))), b"1"], "arrays", "bytes allowed"),
        ([batch(1, ArraySpec("x", "|O", (1,))), b"1"], "arrays", "not one that travels"),
        ([batch(1, ArraySpec("x", "|u1", (1,))), b"1", b"2"], "arrays", "2 arrays came"),
        ([batch(1, ArraySpec("x", "|u1", (2,))), b"1"], "arrays", "its shape needs 2"),
        ([batch(0)], "credit", "came after"),
    ],
)
def test_malformed_messages_are_dropped_counted_and_answered(
    endpoint: str, stranger: Stranger, parts: list[bytes], kind: str, reason: str
) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="honest") as honest:
        stranger.join(HELLO)
        stranger.say(*parts)
        answer = stranger.hear("dropped")
        assert answer[1] == kind
        assert reason in str(answer[2])
        assert learner.dropped == {kind: 1}
        assert honest.send(ONE, timeout=PATIENCE_S)
        found = learner.get(timeout=PATIENCE_S)
        assert found is not None
        assert found.actor == "honest"


def test_a_flood_is_logged_once_and_honest_actors_go_on(
    endpoint: str, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()

    def flood() -> int:
        sent = 0
        while not stop.is_set():
            stranger.say(b"garbage" * 100, b"more")
            sent += 1
        return sent

    with Learner(endpoint) as learner, Actor(endpoint, name="honest") as honest, ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood)
        for _ in range(100):
            assert honest.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None
        stop.set()
        assert flooding.result() > 0
        assert learner.dropped["header"] > 0
    assert len([record for record in caplog.records if "dropped a message" in record.getMessage()]) == 1


def test_a_peer_that_sends_beyond_its_credits_is_held_to_them(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint, limits=Limits(in_flight=2)) as learner:
        stranger.join(HELLO)
        for seq in range(1, 6):
            stranger.say(batch(seq))
        answer = stranger.hear("dropped")
        assert answer[1:] == ["credit", "more than 2 batches in flight", 3]
        stranger.hear("dropped")
        stranger.hear("dropped")
        assert [learner.get(timeout=1) is not None for _ in range(3)] == [True, True, False]
        assert learner.dropped == {"credit": 3}


def test_a_batch_sent_twice_is_used_once(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint) as learner:
        stranger.join(HELLO)
        stranger.say(batch(1))
        assert learner.get(timeout=PATIENCE_S) is not None
        stranger.say(batch(1))
        stranger.hear("dropped")
        assert learner.get(timeout=0) is None


def test_who_said_no_hello_is_asked_for_it(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint) as learner:
        stranger.say(encode_header(Ping(0, inside=False)))
        stranger.hear("who-are-you")
        stranger.say(batch(1))
        stranger.hear("who-are-you")
        assert learner.get(timeout=0) is None
        assert learner.actors == ()


def test_no_peer_can_raise_the_version_beyond_what_the_others_read(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="honest") as honest:
        learner.publish(ONE)
        for version in (1 << 62, 1 << 53):
            stranger.say(encode_header(Hello(PROTOCOL, "stranger", 0, "nonce", 1, "a former learner", version, "")))
        stranger.hear("dropped")
        stranger.hear("welcome")
        found = honest.weights(newer_than=1, timeout=PATIENCE_S)
        assert found is not None
        assert found.version == (1 << 53) + 1
        learner.publish(ONE)
        assert honest.weights(newer_than=found.version, timeout=PATIENCE_S) is not None


def test_a_frame_beyond_the_limit_ends_that_connection_only(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint, limits=Limits(max_message=1 << 20)) as learner, Actor(endpoint, name="honest") as honest:
        stranger.join(HELLO)
        stranger.say(batch(1, ArraySpec("x", "|u1", (2 << 20,))), bytes(2 << 20))
        assert honest.send(ONE, timeout=PATIENCE_S)
        found = learner.get(timeout=PATIENCE_S)
        assert found is not None
        assert found.actor == "honest"


def test_an_actor_of_another_protocol_is_told_and_ends(endpoint: str, stranger: Stranger) -> None:
    with Learner(endpoint) as learner:
        stranger.say(msgspec.msgpack.encode(["hello", PROTOCOL + 1, {"fields": "of a later version"}]))
        assert stranger.hear("refused")[1:] == [
            "protocol",
            f"the learner speaks protocol {PROTOCOL}, this actor {PROTOCOL + 1}",
        ]
        assert learner.dropped == {"protocol": 1}


def test_an_actor_that_a_learner_refuses_for_its_protocol_says_what_to_do(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusched.channel.actor_protocol.PROTOCOL", PROTOCOL + 1)
    with Learner(endpoint), Actor(endpoint) as actor, pytest.raises(ProtocolError, match="install the same gpusched"):
        actor.weights(timeout=PATIENCE_S)


def test_an_actor_outlives_a_learner_that_talks_garbage(endpoint: str, router: Router) -> None:
    with Actor(endpoint) as actor:
        route, _ = router.hear("hello")
        for parts in (
            [b""],
            [b"\xff"],
            [b"x" * 65_537],
            [b"x"] * 257,
            [msgspec.msgpack.encode(["weights", 1, [["w", "|O", [1]]]]), b"x"],
        ):
            router.say([route, *parts])
        until(lambda: actor._loop.dropped == {"malformed": 5}, "all of it has come")
        assert actor.weights(timeout=0.1) is None


def test_what_a_connection_lost_is_sent_again_to_the_same_learner_and_to_no_other(
    endpoint: str, router: Router
) -> None:
    def welcome(learner: str, last: int, *held: int) -> None:
        route, hello = router.hear("hello")
        number = int(str(hello[5]))
        answer = Welcome(
            PROTOCOL, learner, number, credits=3, version=0, heartbeat_ms=50, max_message=1 << 20, seq=last, held=held
        )
        router.say([route, encode_header(answer)])

    def forget() -> None:
        route, _ = router.hear("ping")
        router.say([route, encode_header(WhoAreYou())])

    with Actor(endpoint) as actor:
        welcome("a", 0)
        for _ in range(3):
            assert actor.send(ONE, timeout=PATIENCE_S)
        assert [router.hear("batch")[1][1] for _ in range(3)] == [1, 2, 3]
        forget()
        welcome("a", 2, 2)
        assert router.hear("batch")[1][1] == 3, "it never came: 1 was used, 2 waits"
        forget()
        welcome("b", 0)
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert router.hear("batch")[1][1] == 4, "nobody knows whether the former learner used 2 and 3"


def test_a_connection_that_comes_about_after_a_refused_send_is_used_at_once() -> None:
    """libzmq tells of it once: here to the look for messages that follows the send."""
    said: list[bytes] = []

    class Late:
        def __init__(self) -> None:
            self.connected = False

        def send(self, _route: int, parts: list[bytes]) -> bool:
            said.extend(parts if self.connected else [])
            return self.connected

        def receive(self) -> None:
            self.connected = True

        def writable(self) -> bool:
            return self.connected

        def broken(self) -> bool:
            return False

        def frames_of(self, _arrays: object) -> list[bytes]:
            return []

    ActorProtocol(Late(), threading.Event(), Speaker("actor.0"), Limits())._turn()  # type: ignore[arg-type]
    assert [msgspec.msgpack.decode(part)[0] for part in said] == ["hello"]
