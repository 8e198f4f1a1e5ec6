"""Who speaks for a name, what waits, and that no name ever holds more than was agreed."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.channel.messages import PROTOCOL, BatchHeader, Hello, Refused
from gpusched.channel.registry import ActorRecord, ActorRegistry, Waiting
from gpusched.channel.values import Batch, Limits
from gpusched.errors import ProtocolError

LIMITS = Limits(in_flight=2, silence_s=10)


def hello(
    nonce: str, *, name: str = "actor.0", attempt: int = 0, protocol: int = PROTOCOL, incarnation: int = 0
) -> Hello:
    return Hello(protocol, name, attempt, nonce, 1, "", 0, "", incarnation)


def joined(registry: ActorRegistry, route: bytes, said: Hello, now: float = 0.0) -> ActorRecord:
    peer = registry.hello(route, said, now)
    assert isinstance(peer, ActorRecord)
    return peer


def keep(registry: ActorRegistry, peer: ActorRecord, seq: int) -> Waiting:
    registry.admit(peer, BatchHeader(seq, 0, (), {}))
    return registry.keep(peer, Batch(arrays={}, actor=peer.name, version=0, meta={}, seq=seq), 0)


def test_a_new_process_takes_the_name_and_the_old_connection_is_not_heard() -> None:
    registry = ActorRegistry(LIMITS, "me")
    joined(registry, b"old", hello("a"))
    joined(registry, b"new", hello("b"))
    assert registry.speaker(b"old", 0) is None
    assert registry.speaker(b"new", 0) is not None
    refused = registry.hello(b"old", hello("a"), 1)
    assert isinstance(refused, Refused)
    assert refused.kind == "replaced"


def test_an_earlier_attempt_cannot_take_the_name_back_while_the_later_one_lives() -> None:
    registry = ActorRegistry(LIMITS, "me")
    joined(registry, b"new", hello("b", attempt=2))
    assert isinstance(registry.hello(b"old", hello("a", attempt=1), 5), Refused)
    assert isinstance(registry.hello(b"old", hello("a", attempt=1), 50), ActorRecord), "the later one is silent"


def test_the_same_process_over_a_new_connection_keeps_what_waits() -> None:
    registry = ActorRegistry(LIMITS, "me")
    peer = joined(registry, b"1", hello("a"))
    first = keep(registry, peer, 1)
    keep(registry, peer, 2)
    again = joined(registry, b"2", hello("a"))
    assert registry.welcome(again, 1, 0).held == (1, 2)
    assert registry.taken(first)
    assert registry.welcome(again, 1, 0).held == (2,)


def test_what_a_former_process_left_is_used_until_it_is_in_the_way() -> None:
    registry = ActorRegistry(LIMITS, "me")
    peer = joined(registry, b"1", hello("a"))
    left = [keep(registry, peer, seq) for seq in (1, 2)]
    joined(registry, b"2", hello("b"))
    assert registry.welcome(peer, 1, 0).held == ()
    keep(registry, peer, 1)
    assert [waiting.batch is None for waiting in left] == [True, False]
    assert not registry.taken(left[1]), "its process is gone: nobody to tell"


def test_a_higher_incarnation_has_the_name_at_once_and_for_good_and_what_the_former_left_is_not_used() -> None:
    registry = ActorRegistry(LIMITS, "me")
    peer = joined(registry, b"1", hello("a", attempt=3, incarnation=1))
    left = [keep(registry, peer, seq) for seq in (1, 2)]
    joined(registry, b"2", hello("b", attempt=0, incarnation=2))
    assert registry.speaker(b"1", 0) is None
    assert ([waiting.batch for waiting in left], registry.past) == ([None, None], 2)
    for nonce in ("a", "c"):
        refused = registry.hello(b"1", hello(nonce, attempt=9, incarnation=1), 1000)
        assert isinstance(refused, Refused)
        assert refused.kind == "fenced", "also after a long silence"
    assert joined(registry, b"3", hello("d", attempt=1, incarnation=2)) is peer, "within one, a later process as ever"


def test_a_higher_incarnation_takes_no_name_of_another_key() -> None:
    registry = ActorRegistry(LIMITS, "me")
    assert isinstance(registry.hello(b"1", hello("a", incarnation=1), 0, "key"), ActorRecord)
    for key in ("", "another"):
        refused = registry.hello(b"2", hello("b", incarnation=9), 1000, key)
        assert isinstance(refused, Refused)
        assert refused.kind == "identity"
    assert isinstance(registry.hello(b"1", hello("a", incarnation=1), 1001, "key"), ActorRecord)


def test_silence_is_not_the_end_of_a_connection() -> None:
    registry = ActorRegistry(LIMITS, "me")
    peer = joined(registry, b"1", hello("a"))
    assert registry.within_reach(11) == []
    assert not registry.status(11)[0].connected
    assert registry.speaker(b"1", 12) is peer
    assert registry.within_reach(12) == [peer]


def test_a_name_beyond_the_most_is_refused_and_those_that_are_there_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.registry._MOST_ACTORS", 2)
    registry = ActorRegistry(LIMITS, "me")
    for number in range(2):
        joined(registry, bytes([number]), hello("a", name=f"actor.{number}"))
    refused = registry.hello(b"2", hello("a", name="actor.2"), 0)
    assert isinstance(refused, Refused)
    assert refused.kind == "full"
    joined(registry, b"3", hello("b", name="actor.1"))


@given(
    st.lists(
        st.tuples(st.sampled_from(["hello", "batch", "take", "lose"]), st.integers(0, 3), st.integers(0, 6)),
        max_size=60,
    )
)
def test_whatever_happens_a_name_holds_at_most_k_and_nothing_is_kept_twice(story: list[tuple[str, int, int]]) -> None:
    registry = ActorRegistry(LIMITS, "me")
    kept: list[Waiting] = []
    for what, who, number in story:
        peer = registry.speaker(bytes([who]), 0)
        if what == "hello":
            registry.hello(bytes([who]), hello(f"n{number}", name=f"actor.{who % 2}", attempt=number), 0)
        elif peer is not None and what == "batch":
            try:
                kept.append(keep(registry, peer, number))
            except ProtocolError:
                continue
        elif what == "take" and kept:
            registry.taken(kept[number % len(kept)])
        elif peer is not None and what == "lose":
            registry.lost(peer)
        assert all(status.waiting <= LIMITS.in_flight for status in registry.status(0))
    assert len({(waiting.peer.name, waiting.nonce, waiting.seq) for waiting in kept}) == len(kept)


@given(
    st.lists(
        st.tuples(st.sampled_from(["hello", "hello", "batch", "take", "lose"]), st.integers(0, 3), st.integers(0, 4)),
        max_size=60,
    )
)
def test_no_batch_of_an_incarnation_lower_than_one_that_was_let_in_is_ever_used(
    story: list[tuple[str, int, int]],
) -> None:
    registry, highest, now = ActorRegistry(LIMITS, "me"), 0, 0.0
    kept: list[tuple[int, Waiting]] = []
    seqs = dict.fromkeys(range(4), 0)
    for what, process, number in story:
        route, incarnation, now = bytes([process]), process // 2, now + 5 * number
        peer = registry.speaker(route, now)
        if what == "hello":
            answer = registry.hello(route, hello(f"n{process}", attempt=number, incarnation=incarnation), now)
            assert incarnation >= highest or isinstance(answer, Refused)
            highest = max(highest, incarnation if isinstance(answer, ActorRecord) else 0)
        elif peer is not None and what == "batch":
            seqs[process] += 1
            with suppress(ProtocolError):
                kept.append((incarnation, keep(registry, peer, seqs[process])))
        elif peer is not None and what == "lose":
            registry.lost(peer)
        elif kept and what == "take":
            registry.taken(kept[number % len(kept)][1])
        assert all(waiting.batch is None for incarnation, waiting in kept if incarnation < highest)
