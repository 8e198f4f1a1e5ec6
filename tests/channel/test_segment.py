"""Arrays in shared memory: equal, in one copy, given back when nobody needs them, and nothing left behind."""

import ctypes
import fcntl
import gc
import mmap
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.channel import Actor, Batch, Learner, Limits
from gpusched.channel.framing import ALIGNMENT, DTYPES, extent, pack_arrays, pieces, split, unpack_block
from gpusched.channel.messages import MAX_NUMBER, WeightsHeader, check_header
from gpusched.channel.shm.segment import ReusableSegment, WeightsSegment, map_segment
from gpusched.channel.values import Array
from gpusched.errors import ProtocolError, UsageError
from tests.patience import PATIENCE_S

Start = Callable[..., "subprocess.Popen[str]"]
WaitUntil = Callable[..., None]
MOST = 1 << 24
BIG = 200_000
ALONE = Limits(share_memory=False)

array_of = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 2, shape).astype(dtype),
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 1000),
)


def big(value: int) -> dict[str, Array]:
    return {"x": np.full(BIG, value, np.uint8), "y": np.full((3, 5), value, np.float64)}


def got(learner: Learner) -> Batch:
    batch = learner.get(timeout=PATIENCE_S)
    assert batch is not None
    return batch


def whole(batch: Batch, value: int) -> bool:
    return bool((batch.arrays["x"] == value).all() and (batch.arrays["y"] == value).all())


def welcomed(actor: Actor, learner: Learner) -> None:
    """Wait until both know that they are on one host."""
    if learner.version == 0:
        learner.publish({})
    assert actor.weights(timeout=PATIENCE_S) is not None


def mapped(learner: Learner) -> int:
    with learner._loop._lock:
        return learner._loop._borrowed._count


def segments(actor: Actor) -> tuple[int, int]:
    with actor._loop.changed:
        return len(actor._loop.lent._free), len(actor._loop.lent._lent)


def memory_of(array: Array) -> str:
    """Return the inode of the segment in which the array lies."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, _, stop = line.split()[0].partition("-")
        if int(start, 16) <= address < int(stop, 16) and "memfd:gpus" in line:
            return line.split()[4]
    raise AssertionError("it lies in no segment")


def memories() -> set[str]:
    """Return the segments that this process has mapped: other tests may have left some."""
    gc.collect()
    return {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:gpus" in line}


def descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@given(st.dictionaries(st.text(min_size=1, max_size=9).filter(lambda name: name.isprintable()), array_of, max_size=6))
def test_arrays_come_back_equal_from_a_segment(arrays: dict[str, Array]) -> None:
    specs, ready = pack_arrays(arrays, MOST)
    size = max(1, extent(specs))
    segment = ReusableSegment(size)
    segment.write(specs, ready)
    back = unpack_block(specs, segment.block, MOST)
    assert [part.tobytes() for part in split(specs, segment.block)] == [array.tobytes() for array in arrays.values()]
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
    assert all(start % ALIGNMENT == 0 for start, _ in pieces(specs))
    assert all(stop <= start for (_, stop), (start, _) in zip(pieces(specs), pieces(specs)[1:], strict=False))


def test_a_segment_that_is_too_small_for_its_arrays_is_a_protocol_error() -> None:
    specs, _ = pack_arrays({"x": np.zeros(1000)}, MOST)
    with pytest.raises(ProtocolError, match="8000 bytes do not fit into a segment of 100"):
        unpack_block(specs, np.zeros(100, np.uint8), MOST)


@pytest.mark.parametrize("where", ["ipc", "tcp"])
def test_batches_lie_in_memory_that_the_actor_wrote(where: str, endpoint: str) -> None:
    with (
        Learner(endpoint if where == "ipc" else "tcp://127.0.0.1:0") as learner,
        Actor(learner.endpoint, name="actor.0") as actor,
    ):
        welcomed(actor, learner)
        for value in range(1, 30):
            assert actor.send(big(value), meta={"n": value})
            batch = got(learner)
            assert (batch.actor, batch.version, batch.seq, batch.meta) == ("actor.0", 1, value, {"n": value})
            assert whole(batch, value)
            assert all(array.flags.writeable and array.flags.aligned for array in batch.arrays.values())
            assert mapped(learner) > 0
            for array in batch.arrays.values():
                array[...] = 0
        assert sum(segments(actor)) <= 6, "few segments, used again and again"
        status = learner.actors[0]
        assert (status.batches, status.bytes) == (29, 29 * (BIG + 3 * 5 * 8))
        assert learner.dropped == {}


def test_small_batches_do_not_occupy_segments(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        actor.send({"x": np.zeros(1000)})
        assert got(learner).arrays["x"].shape == (1000,)
        assert segments(actor) == (0, 0)


@pytest.mark.parametrize(("mine", "theirs"), [(ALONE, None), (None, ALONE)])
def test_either_side_may_keep_to_the_socket(endpoint: str, mine: Limits | None, theirs: Limits | None) -> None:
    with Learner(endpoint, limits=mine) as learner, Actor(endpoint, limits=theirs) as actor:
        learner.publish(big(1))
        assert (actor.weights().arrays["x"] == 1).all()
        assert actor.send(big(2))
        assert whole(got(learner), 2)
        assert (segments(actor), mapped(learner), learner.dropped) == ((0, 0), 0, {})
        assert actor.weights().arrays["x"].base is not None


def test_a_batch_is_kept_as_long_as_one_array_of_it_is(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        actor.send(big(1))
        kept = got(learner).arrays["y"][1:, 2]
        for value in range(2, 40):
            actor.send(big(value))
            assert whole(got(learner), value)
        assert (kept == 1).all()


def test_an_application_that_keeps_its_batches_gets_frames_and_then_segments_again(
    endpoint: str, quick: Limits, wait_until: WaitUntil
) -> None:
    with Learner(endpoint, limits=quick) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        kept = []
        for value in range(40):
            assert actor.send(big(value), timeout=PATIENCE_S)
            kept.append(got(learner))
        assert all(whole(batch, value) for value, batch in enumerate(kept))
        free, lent = segments(actor)
        assert (free, lent) == (0, lent)
        kept.clear()
        wait_until(lambda: segments(actor) == (lent, 0), "they come back without another batch")
        actor.send(big(7))
        assert segments(actor)[1] == 1
        assert whole(got(learner), 7)


def test_batches_that_grow_replace_the_segments(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        for power in range(17, 24):
            for value in range(8):
                assert actor.send({"x": np.full(1 << power, value, np.uint8)}, timeout=PATIENCE_S)
                assert (got(learner).arrays["x"] == value).all()
        assert sum(segments(actor)) <= 6
        assert mapped(learner) <= 16
        assert learner.dropped == {}


def test_weights_are_one_copy_that_nobody_can_change(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="a") as one, Actor(endpoint, name="b") as other:
        learner.publish(big(3))
        found = [one.weights(), other.weights()]
        for weights in found:
            assert (weights.arrays["x"] == 3).all()
            with pytest.raises(ValueError, match="read-only"):
                weights.arrays["x"][0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                weights.arrays["x"].flags.writeable = True
        first, second = (memory_of(weights.arrays["x"]) for weights in found)
        assert first == second, "two mappings of one memory"
        learner.publish(big(4))
        assert (one.weights(newer_than=1).arrays["x"] == 4).all()
        assert (found[0].arrays["x"] == 3).all(), "an older version stays as it was"


def test_a_segment_for_weights_can_be_written_by_nobody_else_and_not_be_cut() -> None:
    segment = WeightsSegment(*pack_arrays(big(1), MOST))
    for act in (
        lambda: os.ftruncate(segment.descriptor, 0),
        lambda: os.pwrite(segment.descriptor, b"x", 0),
        lambda: mmap.mmap(segment.descriptor, segment.segment.size),
        lambda: fcntl.fcntl(segment.descriptor, fcntl.F_ADD_SEALS, 0),
    ):
        with pytest.raises(PermissionError):
            act()
    memory = map_segment(segment.segment, writable=False)
    segment.block[:] = 7
    assert set(memory[:]) == {7}
    with pytest.raises(TypeError, match="readonly"):
        memory[0] = 1


def test_a_segment_for_batches_cannot_be_cut() -> None:
    segment = ReusableSegment(100_000)
    for size in (0, segment.segment.size + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.descriptor, size)


def test_a_thousand_batches_and_publishes_leave_no_descriptor(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:

        def exchange(times: int) -> None:
            for value in range(times):
                version = learner.publish(big(value % 200))
                weights = actor.weights(newer_than=version - 1)
                actor.send(big(value % 200), timeout=PATIENCE_S)
                assert (got(learner).arrays["x"] == weights.arrays["x"]).all()

        exchange(20)
        before = descriptors()
        exchange(1000)
        assert descriptors() <= before + 50, "of a thousand: where an answer is late, a few serve by turns"
        assert actor._loop.dropped == learner.dropped == {}


def test_closing_gives_all_memory_back(endpoint: str, wait_until: WaitUntil) -> None:
    def once() -> None:
        with Learner(endpoint) as learner, Actor(endpoint) as actor:
            learner.publish(big(1))
            actor.weights()
            actor.send(big(1))
            got(learner)

    once()
    before, known = descriptors(), memories()
    for _ in range(10):
        once()
    wait_until(lambda: descriptors() <= before, "all descriptors are closed")
    wait_until(lambda: memories() <= known, "no segment is mapped that was not before")


def test_arrays_outlive_both_sides(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(big(1))
        weights = actor.weights()
        actor.send(big(2))
        batch = got(learner)
    assert (weights.arrays["x"] == 1).all()
    assert whole(batch, 2)


def test_whoever_cannot_open_segments_gets_frames_and_no_batch_is_lost(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gpusched.channel.shm.segment._open", refuse)
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        learner.publish(big(5))
        assert (actor.weights(newer_than=1, timeout=PATIENCE_S).arrays["x"] == 5).all()  # type: ignore[union-attr]
        question = actor.ask(big(0))
        arrived = []
        for value in range(1, 22):
            if value >= 2:
                arrived.append(got(learner))
                if arrived[-1].asks:
                    learner.answer(arrived[-1], {"a": np.ones(3)})
            if value < 20:
                assert actor.send(big(value), timeout=PATIENCE_S)
        arrived.sort(key=lambda batch: int(batch.arrays["x"][0]))  # what was refused comes again, behind later ones
        assert all(whole(batch, value) for value, batch in enumerate(arrived))
        assert question is not None
        assert question.wait(timeout=PATIENCE_S) is not None
        assert 1 <= learner.dropped["segment"] <= 2
        learner.publish(big(6))
        assert (actor.weights(newer_than=2, timeout=PATIENCE_S).arrays["x"] == 6).all()  # type: ignore[union-attr]


def test_actors_with_another_token_never_try(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.actor_protocol.host_token", lambda: "another pid namespace, or user")
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(big(1))
        assert (actor.weights().arrays["x"] == 1).all()
        actor.send(big(2))
        assert whole(got(learner), 2)
        assert (learner.dropped, actor._loop.dropped) == ({}, {})
        assert segments(actor) == (0, 0)


def test_without_memfd_everything_goes_as_frames(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(big(1))
        assert (actor.weights().arrays["x"] == 1).all()
        actor.send(big(2))
        assert whole(got(learner), 2)
        assert learner.dropped == {}


def test_a_batch_of_a_process_that_ends_at_once_arrives_whole(start: Start, endpoint: str) -> None:
    with Learner(endpoint) as learner:
        learner.publish({})
        for value in range(1, 4):
            child = start("big", endpoint, value)
            assert child.wait(timeout=PATIENCE_S) == 0
            assert (got(learner).arrays["x"] == value).all()
            assert mapped(learner) > 0


def test_a_killed_actor_leaves_its_last_batch_whole_and_its_memory_is_given_back(
    start: Start, endpoint: str, quick: Limits, wait_until: WaitUntil
) -> None:
    with Learner(endpoint, limits=quick) as learner:
        learner.publish({})
        child = start("flood", endpoint)
        batches = [got(learner) for _ in range(3)]
        child.send_signal(signal.SIGKILL)
        child.wait()
        for batch in batches:
            assert len(np.unique(batch.arrays["x"])) == 1
        while learner.get(timeout=0.2) is not None:
            pass
        assert mapped(learner) > 0
        del batch
        batches.clear()
        wait_until(lambda: mapped(learner) == 0, "unmapped after the silence")


def test_an_actor_gets_its_segments_back_from_a_learner_that_is_gone(endpoint: str, wait_until: WaitUntil) -> None:
    with Actor(endpoint) as actor:
        first = Learner(endpoint)
        welcomed(actor, first)
        for value in range(2):
            assert actor.send(big(value), timeout=PATIENCE_S)
        kept = got(first)
        first.close(over=False)
        with Learner(endpoint) as second:
            wait_until(lambda: segments(actor)[1] == 0, "nothing is lent to the new one")
            for value in range(30):
                assert actor.send(big(value), timeout=PATIENCE_S)
                assert whole(got(second), value)
            assert second.dropped == {}
        assert kept.arrays["x"].shape == (BIG,)


def test_a_lost_connection_loses_no_segment_and_mixes_no_batch(endpoint: str, wait_until: WaitUntil) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        kept = []
        for value in range(60):
            assert actor.send(big(value), timeout=PATIENCE_S)
            kept.append((value, got(learner)))
            if value % 3 == 0:
                kept.clear()
            if value % 10 == 5:
                with learner._loop._lock:
                    for peer in learner._loop._registry.connections():
                        learner._loop._registry.lost(peer)
            assert all(whole(batch, number) for number, batch in kept)
        kept.clear()
        wait_until(lambda: segments(actor)[1] == 0, "all came back")
        assert learner.dropped == {}


def test_a_fork_disturbs_no_segment(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(big(1))
        weights = actor.weights()
        actor.send(big(2))
        batch = got(learner)
        child = os.fork()
        if child == 0:
            actor.close()
            learner.close()
            same = bool((weights.arrays["x"] == 1).all()) and whole(batch, 2)
            del weights, batch
            gc.collect()
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert whole(batch, 2)
        for value in range(20):
            actor.send(big(value), timeout=PATIENCE_S)
            assert whole(got(learner), value)


def test_a_learner_never_waits_for_an_actor_that_is_stopped(start: Start, endpoint: str, quick: Limits) -> None:
    with Learner(endpoint, limits=quick) as learner, Actor(endpoint, name="quick") as actor:
        learner.publish(big(1))
        child = start("flood", endpoint)
        got(learner)
        child.send_signal(signal.SIGSTOP)
        version = 0
        for value in range(2, 200):
            version = learner.publish(big(value))
        weights = actor.weights(newer_than=version - 1, timeout=PATIENCE_S)
        assert weights is not None
        assert (weights.arrays["x"] == 199).all()


def test_what_is_mapped_survives_an_attempt_to_punch_holes_into_it() -> None:
    segment = ReusableSegment(100_000)
    segment.block[:] = 7
    memory = map_segment(segment.segment, writable=True)
    keep_size, punch_hole = 1, 2
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_long(segment.segment.size)
    assert libc.fallocate(segment.descriptor, keep_size | punch_hole, ctypes.c_long(0), size) == 0
    assert set(memory[:]) == {0}, "no signal: the kernel gives new memory"


def test_sends_that_a_signal_ended_leave_room_for_segments(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        welcomed(actor, learner)
        with monkeypatch.context() as during:
            during.setattr(ReusableSegment, "write", interrupt)
            for value in range(20):
                with pytest.raises(KeyboardInterrupt):
                    actor.send(big(value))
        gc.collect()
        assert actor.send(big(1))
        assert segments(actor) == (0, 1)
        assert whole(got(learner), 1)


def test_names_that_leave_no_room_to_name_a_segment_are_refused_at_once(endpoint: str) -> None:
    names = ["\N{SNAKE}" * 120 + f"{index:03}" for index in range(132)]
    arrays: dict[str, Array] = {name: np.zeros(1000, np.uint8) for name in names}
    for size in range(1, 129):  # the longest that goes without a segment
        longer = {**arrays, "\N{LATIN SMALL LETTER E WITH ACUTE}" * size: np.zeros(1)}
        try:
            check_header(WeightsHeader(MAX_NUMBER, pack_arrays(longer, MOST)[0]))
        except UsageError:
            break
        fits = longer
    with Learner(endpoint) as learner, pytest.raises(UsageError, match="65536 allowed"):
        learner.publish(fits)
