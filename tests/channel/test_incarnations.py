"""Actors that a cluster has started again elsewhere: the former ones come back and feed nobody."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Actor, ChannelError, Learner, LearnerGone, Limits
from gpusched.channel.messages import PROTOCOL, BatchHeader, Hello, Leaving, Refused, Welcome, WhoAreYou, encode_header
from gpusched.joining.keys import read_join_key
from gpusched.runtime import LEARNER_LOST
from tests.channel.conftest import ANYWHERE, Launch, MakeDealer, Router, WaitUntil, network
from tests.patience import PATIENCE_S

SMALL = {"x": np.zeros(1, np.uint8)}
LARGE = {"x": np.zeros(1 << 20, np.uint8)}
QUICK = Limits(heartbeat_s=0.1)
GONE = "incarnation 2 of actor.8 is there, and incarnation 1 is over"
Start = Callable[..., Actor]


@pytest.fixture
def learner_of_nodes(launch: Launch, keys: Path) -> None:
    """Let a Learner() be that of a launch with several nodes."""
    launch("learner", LISTEN=ANYWHERE, KEYS=keys / "server.key", INCARNATION=1)


@pytest.fixture
def start(launch: Launch, keys: Path) -> Start:
    def begin(incarnation: int, learner: Learner | None = None, key: str = "lab") -> Actor:
        """Return `actor.8` of that incarnation: on another node of `learner`, or on that of a learner to come."""
        there = {} if learner is None else {"ENDPOINT": network(learner), "KEYS": keys / f"{key}.key"}
        launch("actor", REPLICA="actor.8", INCARNATION=incarnation, **there)
        return Actor()

    return begin


@pytest.mark.usefixtures("learner_of_nodes")
@pytest.mark.parametrize("far", [True, False])
def test_a_higher_incarnation_takes_over_and_what_the_former_sent_is_not_used(
    far: bool, start: Start, run_dir: Path, wait_until: WaitUntil
) -> None:
    with Learner(limits=QUICK) as learner, start(1, learner if far else None) as former:
        assert former.name == "actor.8"
        for _ in range(2):
            assert former.send(LARGE, timeout=PATIENCE_S)
        wait_until(lambda: [each.waiting for each in learner.actors] == [2], "both batches came")
        with start(2, learner if far else None) as later:
            wait_until(lambda: learner.dropped.get("past") == 2, "the later one took over")
            assert later.send(SMALL, meta={"later": True}, timeout=PATIENCE_S)
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
            assert batch.meta == {"later": True}
            with pytest.raises(LearnerGone, match=GONE):
                former.weights(timeout=PATIENCE_S)
            with pytest.raises(LearnerGone, match=GONE):
                former.send(SMALL, timeout=PATIENCE_S)
            former.close()
            assert learner.dropped.keys() == {"past", "fenced"}
            assert (run_dir / LEARNER_LOST).exists() is far, "where the learner is, its supervisor needs no telling"
            assert later.send(SMALL, timeout=PATIENCE_S)
            assert learner.get(timeout=PATIENCE_S) is not None


@pytest.mark.usefixtures("learner_of_nodes")
def test_a_former_incarnation_that_comes_back_is_refused_and_named_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with Learner() as learner, start(2, learner) as later:
        assert later.send(SMALL, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        for _ in range(3):
            with start(1, learner) as former, pytest.raises(LearnerGone, match=GONE):
                former.weights(timeout=PATIENCE_S)
        assert learner.dropped.keys() == {"fenced"}
        assert sum(GONE in record.getMessage() for record in caplog.records) == 1
        assert later.send(SMALL, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None


@pytest.mark.usefixtures("learner_of_nodes")
def test_a_batch_that_was_under_way_when_a_higher_incarnation_came_is_not_kept(keys: Path, dealer: MakeDealer) -> None:
    with Learner() as learner:
        former, later = (dealer(network(learner), read_join_key(keys / "lab.key")) for _ in range(2))
        for incarnation, peer in ((1, former), (2, later)):
            peer.say(Hello(PROTOCOL, "actor.8", 0, f"n{incarnation}", 1, "", 0, "", incarnation))
            peer.hear("welcome")
        former.say(BatchHeader(1, 0, (), {}))
        assert former.hear("who-are-you") == ["who-are-you", 1]
        later.say(BatchHeader(1, 0, (), {"later": True}))
        batch = learner.get(timeout=PATIENCE_S)
        assert batch is not None
        assert batch.meta == {"later": True}
        assert learner.get(timeout=0) is None
        later.say(Leaving())


def test_an_actor_that_is_told_so_while_its_batch_is_under_way_does_not_send_it_again(
    start: Start, router: Router
) -> None:
    with start(1) as actor:
        route, hello = router.hear("hello")
        assert hello[-1] == 1
        for number in (1, 2, 3):  # it says hello again after two seconds, and listens to the answer to the last
            router.say([route, encode_header(Welcome(PROTOCOL, "a", number, 2, 0, 50, 1 << 20, 0, ()))])
        assert actor.send(SMALL, timeout=PATIENCE_S)
        router.hear("batch")
        router.say([route, encode_header(WhoAreYou(1))])
        router.hear("hello", but_not="batch")
        router.say([route, encode_header(Refused("fenced", GONE))])
        with pytest.raises(LearnerGone, match=GONE):
            actor.weights(timeout=PATIENCE_S)
    assert "batch" not in router.rest()


def test_a_learner_that_was_started_again_finds_out_which_incarnation_is_the_last(start: Start, launch: Launch) -> None:
    launch("learner", INCARNATION=1)
    learner = Learner()
    with start(2) as later:
        assert later.send(SMALL, meta={"of": 2}, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        learner.close(over=False)
        with start(1) as former:  # it may come before the other is back
            launch("learner", INCARNATION=1)
            with Learner() as learner:
                with pytest.raises(LearnerGone, match=GONE):
                    former.weights(timeout=PATIENCE_S)
                assert later.send(SMALL, meta={"of": 2}, timeout=PATIENCE_S)
                batch = learner.get(timeout=PATIENCE_S)
                assert batch is not None
                assert batch.meta == {"of": 2}


@pytest.mark.usefixtures("learner_of_nodes")
def test_a_high_incarnation_takes_no_name_of_another_key(start: Start) -> None:
    with Learner() as learner, start(1, learner) as actor:
        assert actor.send(SMALL, timeout=PATIENCE_S)
        assert learner.get(timeout=PATIENCE_S) is not None
        for others in ((9, learner, "other"), (9, None, "")):
            with start(*others) as other, pytest.raises(ChannelError, match=r"actor\.8 is another's"):
                other.weights(timeout=PATIENCE_S)
        assert actor.send(SMALL, timeout=PATIENCE_S)
        assert learner.dropped.keys() == {"identity"}


def test_a_learner_without_other_nodes_takes_no_names_of_theirs(start: Start, keys: Path, launch: Launch) -> None:
    launch("learner", LISTEN=ANYWHERE, KEYS=keys / "server.key")
    with (
        Learner() as learner,
        start(1, learner) as actor,
        pytest.raises(ChannelError, match="with a key, a name has its host"),
    ):
        actor.weights(timeout=PATIENCE_S)
