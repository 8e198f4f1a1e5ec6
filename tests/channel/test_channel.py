"""Batches and weights between a learner and actors over real sockets: equal, bounded, the newest first, to the end."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusched.channel import Actor, ActorStatus, ChannelError, Learner, LearnerGone, Limits
from gpusched.channel.framing import DTYPES, pack_arrays
from gpusched.channel.messages import PROTOCOL, News, WeightsHeader, Welcome, encode_header
from gpusched.channel.network import NetworkSocket
from gpusched.channel.transport import Route, Transport
from gpusched.errors import UsageError
from tests.channel.conftest import ANYWHERE, Router
from tests.patience import PATIENCE_S, until

WaitUntil = Callable[..., None]
ONE = {"x": np.zeros(1, np.uint8)}


def status(learner: Learner, name: str = "actor.0") -> ActorStatus | None:
    return next((actor for actor in learner.actors if actor.name == name), None)


@pytest.mark.parametrize("where", ["ipc", "tcp"])
def test_arrays_of_every_dtype_and_shape_arrive_equal(where: str, endpoint: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [(), (0,), (1,), (0, 3), (7, 3), (2, 3, 4), (70_000,)]
    arrays = {f"{dtype}{shape}": rng.integers(0, 2, shape).astype(dtype) for dtype in DTYPES for shape in shapes}
    with Learner(endpoint if where == "ipc" else "tcp://127.0.0.1:0") as learner:
        with Actor(learner.endpoint, name="actor.3") as actor:
            assert actor.send(arrays, version=5, meta={"score": np.float32(1.5), "game": "snake", "n": 3})
            batch = learner.get(timeout=PATIENCE_S)
        assert batch is not None
        assert (batch.actor, batch.version, batch.seq) == ("actor.3", 5, 1)
        assert batch.meta == {"score": 1.5, "game": "snake", "n": 3}
        assert list(batch.arrays) == list(arrays)
        for name, array in arrays.items():
            found = batch.arrays[name]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
            assert found.flags.writeable
            assert found.flags.aligned


def test_arrays_may_be_changed_as_soon_as_send_and_publish_return(endpoint: str) -> None:
    big = np.ones(1 << 20, np.uint8)
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish({"w": big})
        big[:] = 2
        assert (actor.weights().arrays["w"] == 1).all()
        actor.send({"w": big})
        big[:] = 3
        batch = learner.get(timeout=PATIENCE_S)
        assert batch is not None
        assert (batch.arrays["w"] == 2).all()


def test_an_actor_has_at_most_k_batches_in_flight(endpoint: str, wait_until: WaitUntil) -> None:
    with Learner(endpoint, limits=Limits(in_flight=3)) as learner, Actor(endpoint, name="actor.0") as actor:
        learner.publish({})
        actor.weights()
        sent = 0
        while actor.send(ONE, timeout=0.3):
            sent += 1
        assert sent == 3
        wait_until(lambda: (found := status(learner)) is not None and found.waiting == 3)
        assert learner.get(timeout=PATIENCE_S) is not None
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert not actor.send(ONE, timeout=0.3)
        assert learner.dropped == {}


def test_batches_of_one_actor_come_in_order_and_once(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: [actor.send({"x": np.full(3, i)}, meta={"i": i}) for i in range(500)])
        batches = [learner.get(timeout=PATIENCE_S) for _ in range(500)]
        assert all(sending.result())
        assert [batch.meta["i"] for batch in batches if batch] == list(range(500))
        assert learner.get(timeout=0) is None


def test_a_slow_actor_gets_the_newest_weights_not_each(endpoint: str, wait_until: WaitUntil) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        learner.publish({"w": np.zeros(100_000)})
        assert actor.weights().version == 1
        for value in range(2, 301):
            assert learner.publish({"w": np.full(100_000, value)}) == value
        wait_until(lambda: actor.weights().version == 300, "the newest weights")
        assert (actor.weights().arrays["w"] == 300).all()


def test_weights_are_never_mixed_from_two_versions(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor, ThreadPoolExecutor(1) as pool:
        stop = threading.Event()

        def publish() -> None:
            value = 0
            while not stop.is_set():
                value += 1
                learner.publish({name: np.full(20_000, value) for name in "abc"})

        publishing = pool.submit(publish)
        version = 0
        for _ in range(50):
            weights = actor.weights(newer_than=version)
            assert weights.version > version
            version = weights.version
            assert {float(v) for array in weights.arrays.values() for v in np.unique(array)} == {float(version)}
        stop.set()
        publishing.result()


def test_weights_are_read_only_and_waiting_for_them_can_end(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        assert actor.weights(timeout=0.1) is None
        learner.publish({"w": np.ones(3)})
        weights = actor.weights()
        assert actor.weights(newer_than=weights.version, timeout=0.1) is None
        with pytest.raises(ValueError, match="read-only"):
            weights.arrays["w"][0] = 2


def test_a_batch_tells_the_version_that_its_actor_played_with(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        actor.send(ONE)
        learner.publish({})
        actor.weights()
        actor.send(ONE)
        first, second = learner.get(timeout=PATIENCE_S), learner.get(timeout=PATIENCE_S)
        assert first is not None
        assert second is not None
        assert (first.version, second.version) == (0, 1)


def test_a_learner_that_does_not_read_still_serves_an_actor_that_joins(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as early:
        learner.publish({"w": np.ones(1_000_000, np.float32)})
        while early.send({"x": np.zeros(1_000_000)}, timeout=0.5):
            pass
        with Actor(endpoint, name="actor.1") as joining:
            assert joining.weights(timeout=PATIENCE_S) is not None
            assert joining.send(ONE, timeout=PATIENCE_S)


def test_goodbye_ends_actors_wherever_they_wait(endpoint: str) -> None:
    with Actor(endpoint, name="a") as sending, Actor(endpoint, name="b") as waiting, ThreadPoolExecutor(2) as pool:
        with Learner(endpoint) as learner:
            learner.publish({})
            ends: list[Future[object]] = [
                pool.submit(lambda: [sending.send({"x": np.zeros(500_000)}) for _ in range(1000)]),
                pool.submit(lambda: waiting.weights(99)),
            ]
            learner.get(timeout=PATIENCE_S)
            while len(learner.actors) < 2:
                learner.get(timeout=0.01)
        for end in ends:
            with pytest.raises(LearnerGone):
                end.result(timeout=PATIENCE_S)
        with pytest.raises(LearnerGone):
            sending.weights()


def test_a_batch_sent_just_before_closing_arrives(endpoint: str) -> None:
    with Learner(endpoint) as learner:
        for number in range(20):
            with Actor(endpoint, name="actor.0") as actor:
                actor.send({"x": np.zeros(300_000)}, meta={"n": number})
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
            assert batch.meta["n"] == number


def test_stop_ends_iterations_in_other_threads_and_close_tells_it_is_closed(endpoint: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        with Learner(endpoint) as learner:
            loops = [pool.submit(lambda: list(learner)) for _ in range(2)]
            learner.stop()
            assert [loop.result(timeout=PATIENCE_S) for loop in loops] == [[], []]
            assert learner.get() is None
        with pytest.raises(ChannelError, match="closed"):
            learner.get()


def test_sixteen_mebibytes_and_not_one_byte_more(endpoint: str, wait_until: WaitUntil) -> None:
    most = 16 << 20
    with Learner(endpoint, limits=Limits(max_message=most)) as learner, Actor(endpoint) as actor:
        learner.publish({})
        actor.weights()
        assert actor.send({"x": np.zeros(most, np.uint8)})
        assert learner.get(timeout=PATIENCE_S) is not None
        with pytest.raises(UsageError, match="over the 16777216"):
            actor.send({"x": np.zeros(most + 1, np.uint8)})
        assert actor.send(ONE)
        wait_until(lambda: learner.get(timeout=0.1) is not None)


@pytest.mark.parametrize(
    "given", [{"meta": {"x": "y" * 70_000}}, {"meta": {"x": "\udc80"}}, {"version": -1}, {"version": 1 << 63}]
)
def test_what_the_learner_could_not_read_is_refused_before_it_counts(endpoint: str, given: dict[str, Any]) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        for _ in range(5):
            with pytest.raises(UsageError, match="header"):
                actor.send(ONE, timeout=PATIENCE_S, **given)
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


@pytest.mark.parametrize("names", [[f"{number:é>128}" for number in range(256)], ["\udc80"]])
def test_weights_that_no_actor_could_read_are_refused_and_the_channel_goes_on(endpoint: str, names: list[str]) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        with pytest.raises(UsageError, match="header"):
            learner.publish({name: np.zeros(1) for name in names})
        assert learner.publish(ONE) == 1
        assert actor.weights().version == 1


def test_status_tells_the_silent_the_stuck_and_the_gone(endpoint: str, quick: Limits, wait_until: WaitUntil) -> None:
    with Learner(endpoint, limits=quick) as learner:
        with Actor(endpoint, name="actor.0", limits=quick) as actor:
            actor.send(ONE)
            wait_until(lambda: (found := status(learner)) is not None and found.alive and found.batches == 1)
            wait_until(lambda: (found := status(learner)) is not None and not found.alive and found.connected, "stuck")

            def is_alive_in_a_call() -> bool:
                return actor.weights(timeout=0) is None and (found := status(learner)) is not None and found.alive

            wait_until(is_alive_in_a_call, "alive again")
            wait_until(lambda: actor.connected)
        wait_until(lambda: (found := status(learner)) is not None and not found.connected, "gone")


def test_a_second_process_of_one_name_takes_over_and_the_first_is_told(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as old:
        learner.publish({})
        old.weights()
        with Actor(endpoint, name="actor.0") as new:
            new.weights()
            with pytest.raises(ChannelError, match=r"another process is actor\.0 now"):
                old.weights(newer_than=99, timeout=PATIENCE_S)
            assert new.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        assert len(learner.actors) == 1


def test_opening_and_closing_leaves_no_descriptor_thread_or_file(
    endpoint: str, directory: Path, wait_until: WaitUntil
) -> None:
    def once() -> None:
        with Learner(endpoint) as learner, Actor(endpoint) as actor:
            learner.publish(ONE)
            actor.weights()
            actor.send(ONE)
            learner.get(timeout=PATIENCE_S)

    once()

    def held() -> tuple[int, int]:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()), sum(1 for _ in Path("/proc/self/task").iterdir())

    before = held()
    for _ in range(50):
        once()
    assert held()[0] <= before[0], "no descriptor is left"
    wait_until(lambda: held()[1] <= before[1], "no thread is left; the kernel lists one for a moment longer")
    assert list(directory.iterdir()) == []


def test_a_fork_is_told_instead_of_hanging(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        child = os.fork()
        if child == 0:
            signal.alarm(int(PATIENCE_S))  # ends the child if it hangs
            told = 0
            for call in (learner.get, lambda: actor.send(ONE)):
                try:
                    call()
                except ChannelError as error:
                    told += "before a fork" in error.message
            actor.close()
            learner.close()
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert Path(endpoint.removeprefix("ipc://")).is_socket()
        with pytest.raises(ChannelError, match="another learner holds"):
            Learner(endpoint)
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


def test_closing_ends_in_time_whatever_the_heartbeat_is(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.actor._THREAD_ENDS_S", PATIENCE_S)
    actor = Actor(endpoint, limits=Limits(heartbeat_s=600, silence_s=3600))
    assert actor.send(ONE), "nobody is there: it waits"
    actor.close()
    assert not actor._thread.is_alive()
    assert actor._loop.gone is None


def test_a_socket_is_not_closed_under_the_thread_that_uses_it(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.channel.actor._THREAD_ENDS_S", 0.1)
    actor = Actor(endpoint)
    assert actor.send(ONE), "nobody is there: it waits"
    actor.close()
    assert actor._thread.is_alive()
    actor._thread.join(PATIENCE_S)
    assert actor._loop.gone is None
    actor._loop._link.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": 0},
        {"in_flight": 1 << 17},
        {"max_message": 100},
        {"heartbeat_s": 0},
        {"silence_s": 0.5},
        {"silence_s": float("nan")},
        {"stuck_s": -1},
    ],
)
def test_limits_that_cannot_be_kept_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"\({next(iter(wrong))} is"):
        Limits(**wrong)


def test_an_actor_tells_that_the_learner_would_send_more_than_it_takes(endpoint: str) -> None:
    with Learner(endpoint, limits=Limits(max_message=2 << 20)) as learner:
        learner.publish({"w": np.zeros(2 << 20, np.uint8)})
        small = Limits(max_message=1 << 20)
        with Actor(endpoint, limits=small) as actor, pytest.raises(ChannelError, match="give Actor the same limits"):
            actor.weights(timeout=PATIENCE_S)
        with Actor(endpoint) as actor:
            assert actor.weights(timeout=PATIENCE_S) is not None


def test_a_failure_of_the_thread_reaches_the_application(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Learner(endpoint) as learner:
        monkeypatch.setattr(learner._loop, "_listen", lambda: 1 / 0)
        with pytest.raises(ChannelError, match="ZeroDivisionError") as told:
            learner.get(timeout=PATIENCE_S)
        assert isinstance(told.value.__cause__, ZeroDivisionError), "with its traceback"
    with Actor(endpoint) as actor:
        monkeypatch.setattr(actor._loop, "_send_due", lambda _: 1 / 0)
        with pytest.raises(ChannelError, match="ZeroDivisionError") as told:
            actor.weights(timeout=PATIENCE_S)
        assert isinstance(told.value.__cause__, ZeroDivisionError), "with its traceback"


class Cut:
    """A socket in whose second `call` the handler of a signal raises: when it is `done`, or before."""

    def __init__(self, socket: Any, call: str, *, done: bool) -> None:
        self.socket, self.call, self.done, self.calls = socket, call, done, 0

    def __getattr__(self, name: str) -> Any:
        if name == self.call and threading.current_thread() is threading.main_thread():
            self.calls += 1
            if self.calls == 2:
                return self.cut
        return getattr(self.socket, name)

    def cut(self, *arguments: Any, **options: Any) -> None:
        if self.done:
            getattr(self.socket, self.call)(*arguments, **options)
        raise KeyboardInterrupt


def beneath(side: Actor | Learner) -> tuple[Any, str]:
    """Return where a side keeps the socket of the kernel, or of ZeroMQ."""
    socket: Any = side._loop._link._sockets[0]
    if isinstance(socket, NetworkSocket):
        return socket, "_socket"
    return (socket._connection if isinstance(side, Actor) else next(iter(socket._routes.values()))), "stream"


@pytest.mark.parametrize("call", ["send", "recv", "sendmsg", "recv_into"])
def test_a_signal_amid_a_message_costs_no_other(endpoint: str, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    network = call in {"send", "recv"}
    with Learner(ANYWHERE if network else endpoint) as learner, Actor(learner.endpoint) as actor:

        def exchange() -> None:
            while True:
                assert actor.send(ONE, timeout=PATIENCE_S)
                assert learner.get(timeout=PATIENCE_S) is not None

        learner.publish({})
        actor.weights()
        holder, name = beneath(actor if call.startswith("send") else learner)
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, Cut(getattr(holder, name), call, done=not network))
            with pytest.raises(KeyboardInterrupt):
                exchange()
        learner.publish(ONE)
        assert actor.weights(newer_than=1, timeout=PATIENCE_S) is not None
        while learner.get(timeout=0.5) is not None:
            pass
        for _ in range(5):
            assert actor.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None


def test_close_in_another_thread_ends_a_call_that_waits(endpoint: str) -> None:
    with Learner(endpoint) as learner, ThreadPoolExecutor(2) as pool:
        actor = Actor(endpoint)
        learner.publish({})
        actor.weights()
        waiting = pool.submit(lambda: actor.weights(newer_than=9))
        while actor._loop._stand_in is None:
            time.sleep(0.01)
        actor.close()
        with pytest.raises(ChannelError, match="closed"):
            waiting.result(timeout=PATIENCE_S)
        getting = pool.submit(learner.get)
        while learner._loop._stand_in is None:
            time.sleep(0.01)
        learner.close()
        assert getting.result(timeout=PATIENCE_S) is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the first", "the second"])
def test_several_threads_may_wait_for_answers(endpoint: str, order: tuple[int, int]) -> None:
    calm = Limits(heartbeat_s=600, silence_s=3000)  # no heartbeat brings it about
    with (
        Learner(endpoint, limits=calm) as learner,
        Actor(endpoint, limits=calm) as actor,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = []
        for number in range(2):
            answer = actor.ask({"n": np.full(1, number)}, timeout=PATIENCE_S)
            assert answer is not None
            waiting.append(pool.submit(answer.wait, PATIENCE_S))
            until(lambda: actor._loop._stand_in is not None, "the first stands in")
        until(lambda: actor._loop._waiting == 1, "the second waits beside it")
        batches = [learner.get(timeout=PATIENCE_S) for _ in waiting]
        for number in order:
            batch = batches[number]
            assert batch is not None
            learner.answer(batch, batch.arrays)
            found = waiting[number].result(timeout=PATIENCE_S)
            assert found is not None
            assert found["n"].tolist() == [number]


def test_several_threads_may_take_batches(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor, ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: [batch.meta["n"] for batch in learner]) for _ in range(4)]
        for number in range(300):
            assert actor.send(ONE, meta={"n": number}, timeout=PATIENCE_S)
        while learner.actors[0].batches < 300 or learner.actors[0].waiting:
            time.sleep(0.01)
        learner.stop()
        taken = sorted(number for one in found for number in one.result(timeout=PATIENCE_S))
        assert taken == list(range(300))


def test_while_the_application_is_away_the_channel_serves(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint, name="actor.0") as actor:
        actor.send(ONE)
        assert learner.get(timeout=PATIENCE_S) is not None, "this thread stood in, and stood back"
        learner.publish(ONE)
        with Actor(endpoint, name="actor.1") as joining:
            assert joining.weights(timeout=PATIENCE_S) is not None
            assert actor.weights(timeout=PATIENCE_S) is not None


def test_an_honest_exchange_logs_nothing(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Learner(endpoint) as learner, Actor(endpoint) as actor:
        actor.send(ONE)
        learner.get(timeout=PATIENCE_S)
    assert caplog.records == []


def test_an_idle_pair_uses_next_to_no_cpu(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish({})
        actor.weights()
        before = time.process_time()
        assert learner.get(timeout=2) is None
        assert time.process_time() - before < 0.2, "no loop may poll"


def test_an_error_of_a_signals_handler_while_it_stands_in_ends_one_call_only(endpoint: str) -> None:
    def interrupted(link: Transport) -> Callable[[], None]:
        stand_in = link.stand_in

        def act() -> None:
            stand_in()
            link.stand_in = stand_in  # type: ignore[method-assign]
            raise KeyboardInterrupt

        return act

    calm = Limits(heartbeat_s=600, silence_s=3000)  # no heartbeat makes good what is missed
    with Learner(endpoint, limits=calm) as learner, Actor(endpoint, limits=calm) as actor:
        actor._loop._link.stand_in = interrupted(actor._loop._link)  # type: ignore[method-assign]
        learner._link.stand_in = interrupted(learner._link)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            actor.weights()
        with pytest.raises(KeyboardInterrupt):
            learner.get()
        learner.publish(ONE)
        assert actor.weights(timeout=PATIENCE_S) is not None
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


def test_over_a_socket_an_actor_fetches_one_version_for_each_that_its_application_takes(
    endpoint: str, router: Router
) -> None:
    specs, arrays = pack_arrays(ONE, 1 << 20)

    def give(route: Route, version: int) -> None:
        router.say([route, encode_header(WeightsHeader(version, specs)), *(array.tobytes() for array in arrays)])

    with Actor(endpoint) as actor, ThreadPoolExecutor(1) as pool:
        route, hello = router.hear("hello")
        welcome = Welcome(PROTOCOL, "a", int(str(hello[5])), 9, 1, 50, 1 << 20, 0, ())
        router.say([route, encode_header(welcome)])
        assert router.hear("get-weights")[1][1] == 0, "the first it wants at once"
        give(route, 1)
        assert actor.weights(timeout=PATIENCE_S) is not None
        router.say([route, encode_header(News(2))])
        assert router.hear("get-weights")[1][1] == 1, "nobody knows yet how often it takes any"
        give(route, 2)
        assert actor.weights(newer_than=1, timeout=PATIENCE_S) is not None
        with actor._loop.changed:
            actor._loop.fetching._took_at -= 3600
        assert actor.weights().version == 2, "an hour after the time before"
        router.say([route, encode_header(News(3))])
        actor.send(ONE)
        assert router.hear("batch", but_not="get-weights")[1][1] == 1
        waits = pool.submit(actor.weights, newer_than=2, timeout=PATIENCE_S)
        assert router.hear("get-weights")[1][1] == 2, "who waits is not kept waiting"
        give(route, 3)
        found = waits.result(timeout=PATIENCE_S)
        assert found is not None
        assert found.version == 3
        with actor._loop.changed:
            actor._loop.fetching._took_at = time.monotonic()
        actor.weights()
        router.say([route, encode_header(News(4))])
        assert router.hear("get-weights")[1][1] == 3, "soon after it took some, as it does so often"
        give(route, 4)
        router.say([route, encode_header(News(5))])
        actor.send(ONE)
        assert router.hear("batch", but_not="get-weights")[1][1] == 2, "it has one that it did not take yet"
