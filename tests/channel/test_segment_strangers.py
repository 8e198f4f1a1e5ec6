"""Peers that lie about memory: what they say is dropped, counted and answered, and no process dies of it."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.channel import Actor, Learner
from gpusched.channel.framing import pack_arrays
from gpusched.channel.messages import (
    PROTOCOL,
    ArraySpec,
    BatchHeader,
    Hello,
    Segment,
    WeightsHeader,
    Welcome,
    encode_header,
)
from gpusched.channel.shm.lending import SegmentMap, SegmentPool
from gpusched.channel.shm.segment import ReusableSegment, WeightsSegment, host_token, map_segment
from gpusched.channel.shm.weights_pool import most_offers
from gpusched.errors import ProtocolError
from tests.channel.conftest import Router, Stranger, next_of
from tests.patience import PATIENCE_S

SIZE = 1 << 17
SPECS = (ArraySpec("x", "|u1", (100_000,)),)
OWNER = ("actor.0", "nonce")
replace = msgspec.structs.replace


class Liar(Stranger):
    """Speaks the protocol of an actor on this host, and then says what it likes."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.join(Hello(PROTOCOL, "stranger", 0, "nonce", 1, "", 0, host_token()))

    def batch(self, seq: int, segment: Segment, specs: tuple[ArraySpec, ...] = SPECS) -> None:
        self.say(encode_header(BatchHeader(seq, 0, specs, {}, segment=segment)))


@pytest.fixture(autouse=True)
def _strangers_answer_no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.learner_thread._FAREWELL_S", 0.2)


@pytest.fixture
def learner(endpoint: str) -> Iterator[Learner]:
    with Learner(endpoint) as learner:
        yield learner


@pytest.fixture
def stranger(learner: Learner) -> Iterator[Liar]:
    stranger = Liar(learner.endpoint)
    yield stranger
    stranger.socket.close()


def memfd(size: int = SIZE, seals: int = 0, flags: int = 0, *, filled: bool = True) -> int:
    descriptor = os.memfd_create("lie", os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(descriptor, size)
    if filled:
        os.posix_fallocate(descriptor, 0, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def told(descriptor: int, size: int = SIZE) -> Segment:
    return Segment(os.getpid(), descriptor, os.fstat(descriptor).st_ino, size)


def lies() -> dict[str, Callable[[], Segment]]:
    good = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    honest = told(memfd(seals=good))
    return {
        "more than there is": lambda: replace(honest, size=SIZE * 2),
        "less than there is": lambda: replace(honest, size=SIZE // 2),
        "nothing": lambda: told(memfd(0, good, filled=False), 0),
        "beyond all bounds": lambda: replace(honest, size=1 << 61),
        "another inode": lambda: replace(honest, inode=honest.inode + 1),
        "no such descriptor": lambda: replace(honest, descriptor=1 << 30),
        "no such process": lambda: replace(honest, pid=1 << 30),
        "another process": lambda: replace(honest, pid=os.getppid()),
        "unsealed": lambda: told(memfd()),
        "sealed against growing only": lambda: told(memfd(seals=fcntl.F_SEAL_GROW)),
        "holes": lambda: told(memfd(seals=good, filled=False)),
        "a file": lambda: told(os.open(__file__, os.O_RDONLY)),
        "a pipe": lambda: told(os.pipe()[0], 4096),
        "a socket": lambda: told(socket.socketpair()[0].detach(), 4096),
        "a directory": lambda: told(os.open("/", os.O_RDONLY), 4096),
        "a device": lambda: told(os.open("/dev/zero", os.O_RDONLY), 4096),
        "all memory": lambda: told(os.open("/proc/self/mem", os.O_RDONLY), 4096),
    }


@pytest.mark.parametrize("lie", lies())
def test_lies_about_a_segment_are_dropped_counted_and_answered(
    endpoint: str, learner: Learner, stranger: Liar, lie: str
) -> None:
    stranger.batch(1, lies()[lie]())
    answer = stranger.hear("dropped")
    assert (answer[1], answer[3]) == ("segment", 1)
    assert learner.dropped == {"segment": 1}
    with Actor(endpoint, name="honest") as honest:
        assert honest.send({"x": np.ones(100_000)}, timeout=PATIENCE_S)
        found = learner.get(timeout=PATIENCE_S)
        assert found is not None
        assert found.actor == "honest"


@pytest.mark.parametrize(
    "specs",
    [
        (ArraySpec("x", "|u1", (SIZE + 1,)),),
        (ArraySpec("x", "|u1", (SIZE,)), ArraySpec("y", "|u1", (1,))),
        (ArraySpec("x", "<f8", (1 << 62, 1 << 62)),),
        (ArraySpec("x", "|O", (1,)),),
        (ArraySpec("x", "|u1", (1,)),) * 2,
    ],
)
def test_arrays_beyond_their_segment_are_dropped_and_the_segment_is_free_again(
    learner: Learner, stranger: Liar, specs: tuple[ArraySpec, ...]
) -> None:
    segment = ReusableSegment(SIZE)
    stranger.batch(1, segment.segment, specs)
    assert stranger.hear("dropped")[3] == 1
    stranger.batch(2, segment.segment)
    batch = learner.get(timeout=PATIENCE_S)
    assert batch is not None
    assert batch.seq == 2


def test_a_segment_that_is_in_use_is_not_given_to_a_second_batch(learner: Learner, stranger: Liar) -> None:
    segment = ReusableSegment(SIZE)
    stranger.batch(1, segment.segment)
    first = learner.get(timeout=PATIENCE_S)
    assert first is not None
    stranger.batch(2, segment.segment)
    assert "in use" in str(stranger.hear("dropped")[2])
    del first
    stranger.batch(3, segment.segment)
    assert learner.get(timeout=PATIENCE_S) is not None


def test_an_actor_without_the_token_may_not_send_segments(stranger: Liar) -> None:
    stranger.join(Hello(PROTOCOL, "stranger", 0, "nonce", 2, "", 0, ""))
    stranger.batch(1, ReusableSegment(SIZE).segment)
    assert "shares no memory" in str(stranger.hear("dropped")[2])


def test_memory_and_number_of_an_actors_segments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    borrowed = SegmentMap()
    segments = [ReusableSegment(SIZE) for _ in range(17)]
    kept = [borrowed.take(OWNER, segment.segment, seq) for seq, segment in enumerate(segments[:16])]
    with pytest.raises(ProtocolError, match="more segments than"):
        borrowed.take(OWNER, segments[16].segment, 16)
    del kept[3]
    assert borrowed.collect() == [(OWNER, 3)]
    assert borrowed.take(OWNER, segments[16].segment, 16).nbytes == SIZE, "one that nobody uses makes room"
    monkeypatch.setattr("gpusched.channel.shm.lending._MOST_BYTES", 3 * SIZE)
    others = [borrowed.take(("b", "n"), segment.segment, seq) for seq, segment in enumerate(segments[:3])]
    with pytest.raises(ProtocolError, match="more segments than"):
        borrowed.take(("b", "n"), segments[3].segment, 3)
    with pytest.raises(ProtocolError, match="over the"):
        borrowed.take(("c", "n"), ReusableSegment(4 * SIZE).segment, 1)
    assert len(others) == 3


def test_an_actor_keeps_to_the_bounds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.shm.lending._MOST_BYTES", 4 * SIZE)
    lent = SegmentPool(in_flight=60)
    taken = []
    while (segment := lent.take(SIZE)) is not None:
        taken.append(segment)
    assert 2 <= len(taken) <= 4
    assert lent.take(1 << 30) is None
    for segment in taken:
        lent.put_back(segment)
    assert lent.take(2 * SIZE) is not None, "those that are too small make room"


@given(
    st.builds(
        Segment,
        st.integers(1, 1 << 31) | st.just(os.getpid()),
        st.integers(0, 1 << 31) | st.integers(0, 20),
        st.integers(0, 1 << 62) | st.integers(0, 5000),
        st.integers(0, 1 << 62) | st.integers(0, 1 << 20),
    ),
    st.booleans(),
)
def test_whatever_is_said_of_a_segment_raises_protocol_errors_only(segment: Segment, writable: bool) -> None:
    with suppress(ProtocolError):
        map_segment(segment, writable=writable)


def test_weights_that_are_not_there_or_not_sealed_are_asked_for_again(endpoint: str, router: Router) -> None:
    specs, ready = pack_arrays({"x": np.ones(100_000, np.uint8)}, 1 << 20)
    good = WeightsSegment(specs, ready)
    gone = replace(good.segment, descriptor=WeightsSegment(specs, ready).descriptor)
    unsealed = told(memfd(100_000, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW), 100_000)
    with Actor(endpoint) as actor:
        route, hello = router.hear("hello")
        welcome = Welcome(PROTOCOL, "a", int(str(hello[5])), 2, 0, 50, 1 << 20, 0, (), host_token())
        router.say([route, encode_header(welcome)])
        for version, segment in enumerate((gone, unsealed, replace(good.segment, size=99_999)), 1):
            router.say([route, encode_header(WeightsHeader(version, specs, segment))])
            assert router.hear("got-weights")[1][1:] == [version, False, []]
        assert actor._loop.dropped == {"malformed": 3}
        router.say([route, encode_header(WeightsHeader(9, specs, good.segment))])
        assert router.hear("got-weights")[1][1:] == [9, True, []]
        assert (actor.weights().arrays["x"] == 1).all()


def test_who_missed_weights_that_are_replaced_gets_the_newest(learner: Learner, stranger: Liar) -> None:
    learner.publish({"w": np.zeros(100_000, np.uint8)})
    assert stranger.hear("weights")[1] == 1
    with learner._loop._lock:
        learner._loop._registry.connections()[0].offered.clear()  # as after a long silence
    learner.publish({"w": np.ones(100_000, np.uint8)})
    assert stranger.hear("weights")[1] == 2
    stranger.say(msgspec.msgpack.encode(["got-weights", 1, False]))
    while (received := next_of(stranger.socket)) is not None:
        if (header := msgspec.msgpack.decode(received.header))[0] == "weights":  # a heartbeat may come before it
            break
    assert received is not None
    assert header[1] == 2
    assert received.frames == [bytes([1]) * 100_000]


def test_offers_that_can_be_opened_are_answered_together(endpoint: str, router: Router) -> None:
    specs, ready = pack_arrays({"x": np.ones(100_000, np.uint8)}, 1 << 20)
    good = WeightsSegment(specs, ready)
    most = most_offers(100_000)
    with Actor(endpoint) as actor:
        route, hello = router.hear("hello")
        hour_ms = 3_600_000
        welcome = Welcome(PROTOCOL, "a", int(str(hello[5])), 2, 0, hour_ms, 1 << 20, 0, (), host_token())
        router.say([route, encode_header(welcome)])
        router.hear("ping")
        for version in range(1, most // 2 + 2):
            router.say([route, encode_header(WeightsHeader(version, specs, good.segment))])
            assert actor.weights(newer_than=version - 1).version == version
        assert router.hear("got-weights")[1][1:] == [most // 2, True, [*range(1, most // 2)]]
        actor.send({"y": np.zeros(1, np.uint8)})
        assert router.hear("got-weights")[1][1:] == [most // 2 + 1, True, [most // 2]], "it goes with what is said next"


def test_who_answers_no_offer_gets_a_bounded_number_of_them_and_then_the_newest(
    learner: Learner, stranger: Liar
) -> None:
    most = most_offers(100_000)
    for version in range(1, most + 3):
        learner.publish({"w": np.full(100_000, version, np.uint8)})
    assert [stranger.hear("weights")[1] for _ in range(most)] == [*range(1, most + 1)]
    assert len(learner._loop._registry.connections()[0].offered) == most
    stranger.say(msgspec.msgpack.encode(["got-weights", most, True]))
    assert stranger.hear("weights")[1] == most + 2


@pytest.mark.parametrize(("size", "most"), [(1 << 16, 8), (4_731_728, 7), (1 << 25, 1), (1 << 40, 1)])
def test_the_larger_the_weights_the_fewer_versions_are_kept_for_who_has_not_answered(size: int, most: int) -> None:
    assert most_offers(size) == most
