"""Processes die and come back: the others go on, and no batch is used twice."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpusched.channel import Actor, Learner, LearnerGone
from gpusched.runtime import READY_DIRECTORY, ready_name
from tests.channel.conftest import Launch
from tests.patience import PATIENCE_S

Start = Callable[..., "subprocess.Popen[str]"]
WaitUntil = Callable[..., None]


def test_thirty_two_actors_at_once_all_get_weights_and_are_heard(start: Start, endpoint: str) -> None:
    with Learner(endpoint) as learner:
        learner.publish({"w": np.ones(1000)})
        children = [start("join", endpoint, *(f"actor.{rank}" for rank in range(8 * n, 8 * n + 8))) for n in range(4)]
        heard: set[str] = set()
        while len(heard) < 32:
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
            assert batch.arrays["sum"].item() == 1000
            heard.add(batch.actor)
        assert [child.wait(timeout=PATIENCE_S) for child in children] == [0] * 4
        assert len(learner.actors) == 32


def test_a_killed_actor_disturbs_nobody_and_counts_again_under_its_name(start: Start, endpoint: str) -> None:
    ids: list[str] = []
    with Learner(endpoint) as learner:

        def take_until(condition: Callable[[dict[str, int]], bool]) -> None:
            counts: dict[str, int] = {}
            while not condition(counts):
                batch = learner.get(timeout=PATIENCE_S)
                assert batch is not None
                ids.append(str(batch.meta["id"]))
                counts[batch.actor] = counts.get(batch.actor, 0) + 1

        learner.publish({})
        start("play", endpoint, "actor.0")
        victim = start("play", endpoint, "actor.1")
        take_until(lambda counts: min(counts.get("actor.0", 0), counts.get("actor.1", 0)) > 20)
        victim.kill()
        victim.wait()
        take_until(lambda counts: counts.get("actor.0", 0) > 50)
        again = start("play", endpoint, "actor.1")
        take_until(lambda counts: counts.get("actor.1", 0) > 20 and ids[-1].startswith(f"{again.pid}-"))
        assert len(ids) == len(set(ids))
        assert learner.dropped == {}
        assert sorted(actor.name for actor in learner.actors) == ["actor.0", "actor.1"]


def test_a_killed_learner_comes_back_and_no_batch_is_used_twice(
    start: Start, endpoint: str, directory: Path, wait_until: WaitUntil
) -> None:
    used = directory / "used"
    used.touch()
    actors = [start("play", endpoint, f"actor.{rank}") for rank in range(4)]
    for _ in range(3):
        before = len(used.read_text().splitlines())
        learner = start("collect", endpoint, used, 1_000_000, 4)
        wait_until(lambda before=before: len(used.read_text().splitlines()) > before + 100, "batches")
        learner.send_signal(signal.SIGKILL)
        learner.wait()
    last = start("collect", endpoint, used, 30, 4)
    assert last.wait(timeout=PATIENCE_S) == 0
    lines = [line.split() for line in used.read_text().splitlines() if line.count(" ") == 2]
    ids = [line[0] for line in lines]
    assert len(ids) == len(set(ids))
    assert [actor.wait(timeout=PATIENCE_S) for actor in actors] == [0, 0, 0, 0]


def test_versions_grow_over_a_restart_of_the_learner(endpoint: str) -> None:
    with Actor(endpoint, name="actor.0") as actor:
        first = Learner(endpoint)
        for _ in range(7):
            first.publish({"w": np.zeros(3)})
        assert actor.weights(newer_than=6).version == 7
        first.close(over=False)
        with Learner(endpoint) as second:
            second.publish({"w": np.ones(3)})
            weights = actor.weights(newer_than=7)
            assert weights.arrays["w"].tolist() == [1, 1, 1]
            assert weights.version == second.version == 8
            assert second.publish({}) == 9


def test_credits_come_back_after_a_restart(endpoint: str) -> None:
    with Actor(endpoint, name="actor.0") as actor:
        first = Learner(endpoint)
        while actor.send({"x": np.zeros(3)}, timeout=1.0):
            pass
        first.close(over=False)
        assert not actor.send({"x": np.zeros(3)}, timeout=0.2), "there is no learner: nothing can be sent"
        with Learner(endpoint) as second:
            for _ in range(10):
                assert actor.send({"x": np.zeros(3)}, timeout=PATIENCE_S)
                assert second.get(timeout=PATIENCE_S) is not None


def test_a_learner_that_fails_lets_its_actors_wait_for_the_next(start: Start, endpoint: str) -> None:
    with Actor(endpoint, name="actor.0") as actor:
        failing = start("fail", endpoint)
        actor.send({"x": np.zeros(3)})
        assert actor.weights().version == 1
        actor.send({"x": np.zeros(3)}, meta={"fail": True})
        assert failing.wait(timeout=PATIENCE_S) == 1
        with Learner(endpoint) as learner:
            actor.send({"x": np.ones(3)}, meta={"second": True}, timeout=PATIENCE_S)
            batch = learner.get(timeout=PATIENCE_S)
            assert batch is not None
        with pytest.raises(LearnerGone):
            actor.weights(newer_than=1 << 40)


def test_stop_in_a_signal_handler_ends_the_loop_and_the_actors(start: Start, endpoint: str) -> None:
    learner = start("until-signalled", endpoint)
    assert learner.stdout is not None
    assert learner.stdout.readline() == "ready\n"
    actor = start("play", endpoint, "actor.0")
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(timeout=PATIENCE_S) == 0
    assert learner.stdout.read().startswith("batches ")
    actor.kill()


def test_an_actor_is_not_ready_before_its_learner_has_answered(
    launch: Launch, run_dir: Path, endpoint: str, wait_until: WaitUntil
) -> None:
    (run_dir / READY_DIRECTORY).mkdir()
    launch("actor")
    with Actor() as actor:
        assert actor.send({"x": np.ones(1)}, timeout=PATIENCE_S)
        assert list((run_dir / READY_DIRECTORY).iterdir()) == []
        with Learner(endpoint) as learner:
            assert learner.get(timeout=PATIENCE_S) is not None
            wait_until((run_dir / READY_DIRECTORY / ready_name("actor.0", 0)).exists, "the actor is ready")
