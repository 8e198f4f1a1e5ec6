"""Memory for weights is filled again, and never while anybody may look at what is in it."""

import errno
import gc
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gpusched.channel import Actor, Learner, Limits, Weights
from gpusched.channel.framing import pack_arrays
from gpusched.channel.messages import MAX_RETURNED, PROTOCOL, Hello
from gpusched.channel.shm import segment
from gpusched.channel.shm.lending import Owner
from gpusched.channel.shm.segment import WeightsSegment
from gpusched.channel.shm.weights_pool import Views, WeightsSegmentPool, most_offers
from gpusched.channel.values import Array
from tests.channel.conftest import WaitUntil

SIZE = 1 << 16
OWNERS = [("actor.0", "a"), ("actor.1", "a"), ("actor.1", "b")]
owners = st.sampled_from(OWNERS)
sizes = st.sampled_from([SIZE, 2 * SIZE])


def big(value: int) -> dict[str, Array]:
    return {"x": np.full(200_000, value, np.uint8), "y": np.full((3, 5), value, np.float64)}


def of_size(size: int) -> WeightsSegment:
    return WeightsSegment(*pack_arrays({"x": np.zeros(size, np.uint8)}, 1 << 24))


def whole(weights: Weights, value: int) -> bool:
    return all(bool((array == value).all()) for array in weights.arrays.values())


def memories() -> set[str]:
    """Return the segments that this process has mapped, as learner or as actor."""
    gc.collect()
    return {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:gpus" in line}


class Looking(RuleBasedStateMachine):
    """Actors that look at versions, tell when they have let go, or end without a word: those may look for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = WeightsSegmentPool()
        self.version = 0
        self.newest: WeightsSegment | None = None
        self.looks: dict[tuple[Owner, int], WeightsSegment] = {}
        self.silent: list[WeightsSegment] = []

    @rule(size=sizes, to=st.sets(owners))
    def publish(self, size: int, to: set[Owner]) -> None:
        segment = self.pool.take(size)
        if segment is None:
            segment = of_size(size)
        assert segment.segment.size == size
        assert segment is not self.newest
        assert segment not in self.looks.values()
        assert segment not in self.silent
        self.pool.put(segment)
        self.newest, self.version = segment, self.version + 1
        for owner in to:
            self.tell(owner)

    @rule(owner=owners)
    def tell(self, owner: Owner) -> None:
        if self.newest is not None:
            self.pool.lend(self.newest, self.version, owner)
            self.looks[owner, self.version] = self.newest

    @rule(data=st.data(), owner=owners)
    def give_back(self, data: st.DataObject, owner: Owner) -> None:
        mine = [version for whose, version in self.looks if whose == owner]
        versions = data.draw(st.sets(st.sampled_from(mine))) if mine else set[int]()
        for version in versions:
            del self.looks[owner, version]
        self.pool.give_back(owner, [*versions, 1 << 40])

    @rule(owner=owners)
    def says_hello_again(self, owner: Owner) -> None:
        self.pool.retire(owner)
        self._lose({owner})

    @rule(near=st.sets(owners))
    def only_these_are_heard_of(self, near: set[Owner]) -> None:
        self.pool.retire_all_but(near)
        self._lose(set(OWNERS) - near)

    def _lose(self, owners: set[Owner]) -> None:
        for look in [look for look in self.looks if look[0] in owners]:
            self.silent.append(self.looks.pop(look))

    def teardown(self) -> None:
        self.pool.clear()


TestLooking = Looking.TestCase
TestLooking.settings = settings(max_examples=60, stateful_step_count=60)


@pytest.mark.parametrize(("largest_kept", "most_offered"), [(64 << 20, 32 << 20), (300_000, 1)])
def test_segments_serve_again_and_few_are_enough(
    largest_kept: int, most_offered: int, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusched.channel.shm.weights_pool._LARGEST_KEPT", largest_kept)
    monkeypatch.setattr("gpusched.channel.shm.weights_pool._MOST_OFFERED", most_offered)
    seen = set[int]()
    with Learner(endpoint) as learner, Actor(endpoint, name="a") as one, Actor(endpoint, name="b") as other:
        for value in range(1, 200):
            version = learner.publish(big(value))
            for actor in (one, other):
                assert whole(actor.weights(newer_than=version - 1), value)
            published = learner._loop._published
            assert published is not None
            assert published.segment is not None
            seen.add(published.segment.segment.inode)
        assert len(seen) <= 30, "of 199: some were late once"
        assert one._loop.dropped == learner.dropped == {}


def test_weights_that_are_kept_stay_as_they_were_whatever_happens_to_the_connection(endpoint: str) -> None:
    dice = random.Random(3)  # noqa: S311 (no secret)
    limits = Limits(heartbeat_s=0.05)
    with (
        Learner(endpoint, limits=limits) as learner,
        Actor(endpoint, name="a") as one,
        Actor(endpoint, name="b") as other,
    ):
        kept: list[tuple[int, Weights]] = []
        for value in range(1, 250):
            version = learner.publish(big(value % 256))
            for actor in (one, other):
                if dice.random() < 0.7:
                    weights = actor.weights(newer_than=version - 1)
                    kept.append((weights.version % 256, weights))
            if dice.random() < 0.5:
                kept = dice.sample(kept, len(kept) // 2)
            if dice.random() < 0.1:
                with learner._loop._lock:
                    for peer in learner._loop._registry.connections():
                        learner._loop._registry.lost(peer)
            assert all(whole(weights, value) for value, weights in kept)


def test_an_actor_that_stops_taking_weights_keeps_no_memory_from_the_others(endpoint: str) -> None:
    before = memories()
    with Learner(endpoint) as learner, Actor(endpoint, name="idle") as idle, Actor(endpoint, name="busy") as busy:
        learner.publish(big(1))
        first = idle.weights()
        for value in range(2, 100):
            version = learner.publish(big(value))
            assert whole(busy.weights(newer_than=version - 1), value)
        assert whole(first, 1)
        assert len(memories() - before) <= 50, "half of the versions: an answer may be late, and memory serves by turns"


def test_large_weights_are_not_kept_for_later(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.shm.weights_pool._LARGEST_KEPT", 100_000)
    before = memories()
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        for value in range(1, 20):
            version = learner.publish(big(value))
            assert whole(actor.weights(newer_than=version - 1), value)
        assert len(memories() - before) <= most_offers(200_000), "what the learner has no answer for"


def test_versions_that_an_actor_has_let_go_are_told_until_they_were_heard() -> None:
    views, segment = Views(), of_size(SIZE)
    looks = [views.take(segment.segment, version) for version in range(MAX_RETURNED + 2)]
    assert views.unused() == ()
    del looks[:2]
    assert sorted(views.unused()) == sorted(views.unused()) == [0, 1]
    views.acknowledged()
    looks.clear()
    assert len(views.unused()) == MAX_RETURNED
    last = views.take(segment.segment, 99)
    views.begin(same=True)
    del last
    assert views.unused() == (), "the learner counts on nothing from before"


def test_what_a_silent_actor_may_look_at_is_given_up(endpoint: str, wait_until: WaitUntil) -> None:
    with (
        Learner(endpoint, limits=Limits(heartbeat_s=0.1, silence_s=0.5)) as learner,
        Actor(endpoint, name="a") as one,
        Actor(endpoint, name="b") as other,
    ):

        def lent_to(name: str) -> int:
            with learner._loop._lock:
                return sum(owner[0] == name for looks in learner._loop._pool._lent.values() for owner, _ in looks)

        learner.publish(big(1))
        kept = one.weights()
        assert whole(other.weights(), 1)
        learner.publish(big(2))
        wait_until(lambda: lent_to("a") > 0)
        with one._loop.changed:  # so it says nothing, as one that is stopped
            wait_until(lambda: lent_to("a") == 0)
        assert whole(kept, 1)


def test_nothing_is_kept_for_an_actor_that_has_gone_before_it_was_welcomed(endpoint: str) -> None:
    with Learner(endpoint) as learner:
        learner.publish(big(1))
        with learner._loop._lock:
            token = learner._loop._registry._host
            learner._loop._welcome(b"gone", Hello(PROTOCOL, "a", 0, "nonce", 1, "", 0, token), 0.0)
            (peer,) = learner._loop._registry._by_name.values()
        assert (peer.route, peer.offered) == (None, {})


def test_a_process_that_an_actor_forks_keeps_the_weights_that_it_was_forked_with(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(big(1))
        held = actor.weights()
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(theirs)
            os.read(ours, 1)  # until the parent says so, or has ended
            os._exit(0 if whole(held, 1) else 1)
        del held
        for value in range(2, 60):
            version = learner.publish(big(value))
            assert whole(actor.weights(newer_than=version - 1), value)
        os.write(theirs, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(ours)
        os.close(theirs)


def test_where_memory_cannot_be_sealed_for_others_weights_go_as_frames(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_SEALED_FOR_OTHERS", 0x8000)  # as F_SEAL_FUTURE_WRITE was before Linux 5.1
    segment.can_share_weights.cache_clear()
    try:
        before = memories()
        with Learner(endpoint) as learner, Actor(endpoint) as actor:
            learner.publish(big(1))
            assert whole(actor.weights(), 1)
            assert memories() <= before
            assert learner.dropped == actor._loop.dropped == {}
    finally:
        segment.can_share_weights.cache_clear()


def test_a_want_of_descriptors_is_no_reason_to_share_no_memory_later(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.can_share_weights.cache_clear()
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", no_descriptor)
            learner.publish(big(1))
        assert whole(actor.weights(), 1)
        before = memories()
        learner.publish(big(2))
        assert whole(actor.weights(newer_than=1), 2)
        assert memories() > before


def no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_version_that_came_twice_is_let_go_with_the_last_look_at_it() -> None:
    views, segment = Views(), of_size(SIZE)
    looks = [views.take(segment.segment, 5), views.take(segment.segment, 5)]
    del looks[1]
    assert views.unused() == ()
    looks.clear()
    assert views.unused() == (5,)


def test_mappings_of_what_does_not_come_again_are_given_back() -> None:
    views, gone, stays = Views(), of_size(SIZE), of_size(SIZE)
    before = memories()
    views.take(gone.segment, 0)
    for version in range(1, 100):
        views.take(stays.segment, version)
    assert set(views._mapped) == {stays.segment}
    assert memories() <= before, "both are the learner's still"
