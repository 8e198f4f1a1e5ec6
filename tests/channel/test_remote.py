"""Actors on another host beside those on the learner's own: they join, feed it, come back, and are told of by host."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from gpusched.channel import Actor, ChannelError, Learner, LearnerGone, Limits, actor_protocol
from gpusched.channel.actor_protocol import ActorProtocol
from gpusched.channel.messages import Welcome, encode_header
from gpusched.channel.network import NetworkSocket
from gpusched.channel.transport import ClientSocket, Part, Route, Wake
from gpusched.channel.values import Speaker
from gpusched.errors import NotFound, UsageError
from gpusched.joining.invitation import (
    PROTOCOL,
    Invitation,
    Invited,
    Join,
    only_ipv6,
    request_join,
    write_invitation,
)
from gpusched.joining.keys import make_server_key, new_key, read_join_key, revoke
from gpusched.runtime import LEARNER_LOST
from tests.channel.conftest import ANYWHERE, Dealer, Launch, MakeDealer, Relay, Router, WaitUntil, network
from tests.patience import PATIENCE_S

ONE = {"x": np.zeros(1, np.uint8)}
LARGE = np.arange(1 << 20, dtype=np.uint32)
INVITATION = Invitation(job="job-1", workload="snake", options='{"boards": 4}', files={}, versions={"gpusched": "1"})
QUICK = Limits(heartbeat_s=0.2, silence_s=2.0)


@pytest.fixture
def run_dir(run_dir: Path) -> Path:
    write_invitation(run_dir, INVITATION)
    return run_dir


@pytest.fixture
def listening(launch: Launch, keys: Path) -> None:
    launch("learner", LISTEN=ANYWHERE, KEYS=keys / "server.key")


def joined(run_dir: Path) -> dict[str, dict[str, object]]:
    try:
        told: list[dict[str, object]] = msgspec.json.decode((run_dir / "joined.json").read_bytes())
    except FileNotFoundError:
        return {}
    return {str(each["host"]): each for each in told}


def test_local_and_joined_actors_feed_one_learner_each_in_its_way(endpoint: str, keys: Path) -> None:
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner,
        Actor(endpoint, name="actor.0") as local,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as remote,
    ):
        learner.publish({"w": LARGE})
        for actor in (local, remote):
            found = actor.weights(timeout=PATIENCE_S)
            assert found is not None
            assert (found.arrays["w"] == LARGE).all()
            for number in range(10):
                assert actor.send({"x": LARGE + number}, timeout=PATIENCE_S)
                batch = learner.get(timeout=PATIENCE_S)
                assert batch is not None
                assert batch.actor == actor.name
                assert (batch.arrays["x"] == LARGE + number).all()
        assert local._loop._shares
        assert not remote._loop._shares
        assert learner.dropped == {}


def test_an_answer_goes_to_another_host_too(endpoint: str, keys: Path) -> None:
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0") as remote,
    ):
        assert remote.name.startswith("actor.0@")
        asked = remote.ask({"x": LARGE}, timeout=PATIENCE_S)
        batch = learner.get(timeout=PATIENCE_S)
        assert asked is not None
        assert batch is not None
        learner.answer(batch, {"sum": batch.arrays["x"].sum(keepdims=True)})
        answer = asked.wait(timeout=PATIENCE_S)
        assert answer is not None
        assert answer["sum"] == LARGE.sum()


@pytest.mark.usefixtures("listening")
def test_a_host_that_asks_is_told_what_to_run_and_what_it_is_called(keys: Path) -> None:
    with Learner() as learner:
        where = network(learner)
        lab, other = read_join_key(keys / "lab.key"), read_join_key(keys / "other.key")
        first = request_join(where, lab, "node", PATIENCE_S)
        assert first == Invited("node", 1000, INVITATION)
        assert request_join(where, lab, "node", PATIENCE_S) == Invited("node-2", 2000, INVITATION)
        assert request_join(where, other, "node", PATIENCE_S).joined == "node-3"
        long = "n" * 32
        assert request_join(where, other, long, PATIENCE_S).joined == long
        assert request_join(where, other, long, PATIENCE_S).joined == "n" * 30 + "-2"


@pytest.mark.usefixtures("listening")
def test_one_who_asks_twice_is_told_the_same_and_another_is_not(keys: Path, dealer: MakeDealer) -> None:
    def ask(peer: Dealer, nonce: str) -> list[object]:
        peer.say(Join(PROTOCOL, "node", nonce))
        return peer.hear("invited")

    with Learner() as learner:
        peer = dealer(network(learner), read_join_key(keys / "lab.key"))
        again = dealer(network(learner), read_join_key(keys / "lab.key"))
        other = dealer(network(learner), read_join_key(keys / "other.key"))
        assert ask(peer, "a")[1:3] == ["node", 1000]
        assert ask(again, "a")[1:3] == ["node", 1000]
        assert ask(again, "b")[1:3] == ["node-2", 2000]
        assert ask(other, "a")[1:3] == ["node-3", 3000]


def test_who_cannot_join_is_told_why(endpoint: str, keys: Path, directory: Path, launch: Launch) -> None:
    lab = read_join_key(keys / "lab.key")
    make_server_key(directory / "elsewhere", "job-2")
    stranger = read_join_key(new_key(directory / "elsewhere", "stranger"))
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner:
        where = network(learner)
        with pytest.raises(ChannelError, match="it was not launched"):
            request_join(where, lab, "node", PATIENCE_S)
        with pytest.raises(UsageError, match="wants a key"):
            request_join(where, None, "node", PATIENCE_S)
        with pytest.raises(UsageError, match="not the learner of job-2"):
            request_join(where, stranger, "node", PATIENCE_S)
        revoke(keys, "lab")
        with pytest.raises(UsageError, match="does not let in the key 'lab' of job-1"):
            request_join(where, lab, "node", PATIENCE_S)
    with pytest.raises(NotFound, match="nothing listens there"):
        request_join(where, lab, "node", 0.3)
    launch("learner", LISTEN=ANYWHERE)
    with Learner() as learner:
        with pytest.raises(UsageError, match="speaks without keys"):
            request_join(network(learner), lab, "node", PATIENCE_S)
        assert request_join(network(learner), None, "node", PATIENCE_S).joined == "node"


@pytest.mark.usefixtures("listening")
def test_the_run_directory_tells_of_the_hosts(keys: Path, run_dir: Path, wait_until: WaitUntil) -> None:
    with Learner(limits=QUICK) as learner:
        assert request_join(network(learner), read_join_key(keys / "lab.key"), "node", PATIENCE_S).joined == "node"
        wait_until(lambda: "node" in joined(run_dir))
        with Actor(network(learner), keys=keys / "lab.key", name="actor.0@node") as actor:
            assert actor.send({"x": LARGE}, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None
            wait_until(lambda: joined(run_dir)["node"]["connected"] == 1)
            told = joined(run_dir)["node"]
            assert told["actors"] == told["batches"] == 1
            assert told["bytes"] == LARGE.nbytes
            assert told["address"] == "127.0.0.1"
        wait_until(lambda: joined(run_dir)["node"]["connected"] == 0)
    assert "secret" not in (run_dir / "joined.json").read_text()


@pytest.mark.usefixtures("listening")
def test_after_a_restart_names_and_ranks_are_whose_they_were(
    endpoint: str, keys: Path, run_dir: Path, wait_until: WaitUntil
) -> None:
    lab, other = read_join_key(keys / "lab.key"), read_join_key(keys / "other.key")
    learner = Learner(limits=QUICK)
    where = network(learner)
    assert request_join(where, lab, "node", PATIENCE_S).first_rank == 1000
    with Actor(where, keys=keys / "lab.key", name="actor.0@node") as actor:
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        wait_until(lambda: "node" in joined(run_dir))
        learner.close(over=False)
        with Learner(endpoint, listen=where, keys=keys / "server.key", limits=QUICK) as second:
            assert actor.send(ONE, timeout=PATIENCE_S), "it is back by itself"
            assert second.get(timeout=PATIENCE_S) is not None
        with pytest.raises(LearnerGone):
            actor.send(ONE, timeout=PATIENCE_S)
    with Learner(limits=QUICK) as third:
        assert request_join(network(third), other, "node", PATIENCE_S).first_rank == 2000
        assert request_join(network(third), other, "node", PATIENCE_S).joined == "node-3"
        assert joined(run_dir)["node"]["batches"] == 1


def test_a_learner_that_knows_nothing_of_a_host_gives_its_name_to_the_key_that_says_it_first(
    endpoint: str, keys: Path
) -> None:
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@node") as actor,
    ):
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        with (
            Actor(network(learner), keys=keys / "other.key", name="actor.1@node") as thief,
            pytest.raises(ChannelError, match="the host node has another key"),
        ):
            thief.weights(timeout=PATIENCE_S)


def test_an_actor_elsewhere_takes_weights_as_large_as_its_limit(endpoint: str, keys: Path) -> None:
    limits = Limits(max_message=LARGE.nbytes)
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=limits) as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab", limits=limits) as actor,
    ):
        learner.publish({"w": LARGE})
        found = actor.weights(timeout=PATIENCE_S)
        assert found is not None
        assert (found.arrays["w"] == LARGE).all()


def test_an_actor_elsewhere_that_takes_less_than_the_weights_may_have_says_so(endpoint: str, keys: Path) -> None:
    limits = Limits(max_message=LARGE.nbytes, max_remote=1 << 20)
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=limits) as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab", limits=Limits(max_message=2 << 20)) as actor,
    ):
        learner.publish({"w": LARGE})
        with pytest.raises(ChannelError, match=f"sends up to {LARGE.nbytes} bytes, this actor takes {2 << 20}") as told:
            actor.weights(timeout=PATIENCE_S)
        assert "same limits" in told.value.hint


def test_a_replica_that_joined_says_where_it_is(
    endpoint: str, keys: Path, launch: Launch, wait_until: WaitUntil
) -> None:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner:
        launch("actor", ENDPOINT=network(learner), KEYS=keys / "lab.key", JOINED="node")
        with Actor() as actor:
            assert actor.name == "actor.0@node"
            assert actor.send(ONE, timeout=PATIENCE_S)
            wait_until(lambda: [each.name for each in learner.actors] == ["actor.0@node"])


def test_without_keys_a_host_may_join_on_loopback(launch: Launch, run_dir: Path, wait_until: WaitUntil) -> None:
    launch("learner", LISTEN=ANYWHERE)
    with Learner(limits=QUICK) as learner:
        assert request_join(network(learner), None, "node", PATIENCE_S).joined == "node"
        with Actor(network(learner), name="actor.0@node") as actor:
            assert actor.send(ONE, timeout=PATIENCE_S)
            wait_until(lambda: joined(run_dir).get("node", {}).get("connected") == 1)
    launch("learner", LISTEN="tcp://0.0.0.0:0")
    with pytest.raises(UsageError, match="stays on one host"):
        Learner()


def test_an_actor_that_hears_of_no_learner_gives_up_when_its_patience_ends(
    keys: Path, launch: Launch, run_dir: Path
) -> None:
    launch("actor", ENDPOINT="tcp://127.0.0.1:9", KEYS=keys / "lab.key", PATIENCE_S=1, JOINED="node")
    with Actor() as actor, pytest.raises(LearnerGone, match="nothing came from the learner for 1 s"):
        actor.weights(timeout=PATIENCE_S)
    assert (run_dir / LEARNER_LOST).exists()


class Silent(ClientSocket):
    """A way to a learner from which nothing comes."""

    descriptor = -1

    def receive(self) -> None:
        return None

    def send(self, route: Route, parts: Sequence[Part]) -> bool:  # noqa: ARG002
        return False

    def writable(self) -> bool:
        return False

    def reconnect(self) -> None:
        return

    def close(self) -> None:
        pass


class Waiting(ActorProtocol):
    """An actor that waits for its learner, turn by turn."""

    turn = ActorProtocol._turn

    def notify(self) -> None:
        pass


def test_what_an_actor_was_halted_is_no_time_in_which_nothing_came(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(actor_protocol, "time", SimpleNamespace(monotonic=lambda: now))
    speaker = Speaker("actor.0", elsewhere=True, patience_s=900.0, first_s=900.0)
    actor = Waiting(Silent(), Wake(), speaker, Limits())
    now += 5000.0
    actor.turn()
    assert actor.gone is None, "what came meanwhile is still to be read"
    now += 1.5
    actor.turn()
    assert "nothing came from the learner for 900 s" in str(actor.gone)


@pytest.mark.parametrize("every_s", [0.5, 3.0, 60.0])
def test_an_actor_gives_up_in_time_however_seldom_it_has_a_turn(
    every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(actor_protocol, "time", SimpleNamespace(monotonic=lambda: now))
    actor = Waiting(Silent(), Wake(), Speaker("actor.0", elsewhere=True, patience_s=900.0, first_s=900.0), Limits())
    while actor.gone is None and now < 5000.0:
        now += every_s
        actor.turn()
    assert 1900.0 < now <= 1902.0 + 2 * every_s


def test_a_key_that_is_not_let_in_ends_the_actor(endpoint: str, keys: Path) -> None:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner:
        with Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as actor:
            assert actor.send(ONE, timeout=PATIENCE_S)
        key = keys / "kept.key"
        key.write_bytes((keys / "lab.key").read_bytes())
        key.chmod(0o600)
        revoke(keys, "lab")
        with (
            Actor(network(learner), keys=key, name="actor.1@lab") as actor,
            pytest.raises(ChannelError, match="the key 'lab' was revoked, or is of another job"),
        ):
            actor.weights(timeout=PATIENCE_S)


def test_an_actor_gets_over_somebody_else_who_had_the_learners_port(endpoint: str, keys: Path) -> None:
    without_keys = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # ZMTP's greeting
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with Actor(where, keys=keys / "lab.key", name="actor.0@lab") as actor:
            with other.accept()[0] as met:
                met.sendall(without_keys)
                while met.recv(1000):
                    continue
            other.close()
            with Learner(endpoint, listen=where, keys=keys / "server.key") as learner:
                learner.publish(ONE)
                assert actor.weights(timeout=PATIENCE_S) is not None


@pytest.fixture
def ipv6(endpoint: str, keys: Path) -> Iterator[str]:
    """Where a learner with weights listens."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    with Learner(endpoint, listen="tcp://[::1]:0", keys=keys / "server.key") as learner:
        learner.publish(ONE)
        yield network(learner)


def test_where_there_is_ipv6_a_learner_may_listen_there(ipv6: str, keys: Path) -> None:
    with Actor(ipv6, keys=keys / "lab.key", name="actor.0@lab") as actor:
        assert actor.weights(timeout=PATIENCE_S) is not None


def test_who_has_ipv6_only_is_reached_without_its_brackets_too(ipv6: str, keys: Path) -> None:
    """An address without brackets goes the way of a name: whoever looks it up finds IPv6, and nothing else."""
    bare = ipv6.replace("[", "").replace("]", "")
    with pytest.raises(ChannelError, match="it was not launched"):
        request_join(bare, read_join_key(keys / "lab.key"), "node", PATIENCE_S)
    with Actor(bare, keys=keys / "lab.key", name="actor.0@lab") as actor:
        assert actor.weights(timeout=PATIENCE_S) is not None


@pytest.mark.parametrize(
    ("found", "only"),
    [
        ([socket.AF_INET6, socket.AF_INET6], True),
        ([socket.AF_INET6, socket.AF_INET], False),
        ([socket.AF_INET], False),
        (socket.gaierror("no such name"), False),
    ],
)
def test_a_name_that_has_ipv4_too_is_reached_there(
    found: list[socket.AddressFamily] | Exception, *, only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, *_: object, **__: object) -> list[tuple[socket.AddressFamily]]:
        assert host == "lab1"
        if isinstance(found, Exception):
            raise found
        return [(family,) for family in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert only_ipv6("tcp://lab1:5555") == only
    assert only_ipv6("tcp://[::1]:5555")


def test_a_batch_on_its_way_when_the_link_breaks_is_used_once(
    endpoint: str, keys: Path, relay: Callable[[str], Relay], wait_until: WaitUntil
) -> None:
    """Each batch has a number; whatever the breaks took along comes once, or not at all."""
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=QUICK) as learner:
        between = relay(network(learner))
        stop = threading.Event()
        sent: list[int] = []

        def play() -> None:
            with Actor(between.endpoint, keys=keys / "lab.key", name="actor.0@lab", limits=QUICK) as actor:
                while not stop.is_set():
                    if actor.send({"n": np.full(50_000, len(sent))}, timeout=0.2):
                        sent.append(len(sent))
                wait_until(lambda: not actor._loop.in_flight and not actor._loop.outbox)

        playing = threading.Thread(target=play)
        playing.start()
        used: list[int] = []
        for _ in range(5):
            until = len(used) + 20
            while len(used) < until:
                batch = learner.get(timeout=PATIENCE_S)
                assert batch is not None
                used.append(int(batch.arrays["n"][0]))
            between.cut()
        stop.set()
        while playing.is_alive() or learner._loop._inbox.qsize():
            batch = learner.get(timeout=0.2)
            if batch is not None:
                used.append(int(batch.arrays["n"][0]))
        assert sorted(used) == sent


def test_an_actor_elsewhere_connects_anew_when_its_socket_has_given_up(
    endpoint: str, keys: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr("gpusched.channel.actor_protocol._RECONNECT_S", 1.0)
    with (
        Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key", limits=QUICK) as learner,
        Actor(network(learner), keys=keys / "lab.key", name="actor.0@lab") as actor,
    ):
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        with actor._loop.changed:
            socket = actor._loop._link._sockets[0]
            assert isinstance(socket, NetworkSocket)
            socket._socket.disconnect(network(learner))  # as libzmq may, for reasons of its own
            before = actor._loop._connected_at
        wait_until(lambda: actor._loop._connected_at != before, "it connects anew")
        assert actor.send(ONE, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


def test_weights_that_take_long_to_come_are_waited_for(
    endpoint: str, keys: Path, relay: Callable[[str], Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Learner(endpoint, listen=ANYWHERE, keys=keys / "server.key") as learner:
        slow = relay(network(learner))
        with Actor(slow.endpoint, keys=keys / "lab.key", name="actor.0@lab") as actor:
            assert actor.send(ONE, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None, "it is connected"
            monkeypatch.setattr("gpusched.channel.actor_protocol._RECONNECT_S", 0.5)
            slow.pause_s = 0.03
            learner.publish({"w": LARGE})
            found = actor.weights(timeout=PATIENCE_S)
            assert found is not None
            assert (found.arrays["w"] == LARGE).all()
        assert slow.opened == 1


def test_the_first_word_after_an_outage_is_a_short_one(
    endpoint: str, router: Router, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    with Actor(endpoint, name="actor.0") as actor:
        route, hello = router.hear("hello")
        hour_ms = 3_600_000
        welcome = Welcome(PROTOCOL, "a", int(str(hello[5])), 2, 0, hour_ms, 1 << 20, 0, ())
        router.say([route, encode_header(welcome)])
        router.hear("ping")
        with monkeypatch.context() as down:
            down.setattr("gpusched.channel.local.LocalClient.send", lambda *_: False)
            down.setattr("gpusched.channel.local.LocalClient.writable", lambda _: False)
            assert actor.send(ONE)
            wait_until(lambda: actor._loop.outbox)
        with actor._loop.changed:
            actor._loop._guarded_turn()
        assert router.hear("ping", but_not="batch")
        assert router.hear("batch")


def test_a_wait_for_weights_that_was_in_vain_hurries_nobody_afterwards(endpoint: str) -> None:
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish(ONE)
        assert actor.weights(newer_than=5, timeout=0.2) is None
        assert actor._loop.fetching.waited_for == 0
