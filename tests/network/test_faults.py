"""What a network brings: a link that is down, slow or lossy. Training goes on, and no batch is used twice."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.network.hosts import Host, Relay
from tests.patience import PATIENCE_S, until

PORT = 5555
LOCAL = ("actor.0", "actor.1")
REMOTE = ("actor.0@lab2", "actor.1@lab2", "actor.2@lab2", "actor.3@lab2")


class Training:
    """A learner with two actors on one host, four on another."""

    def __init__(self, here: Host, there: Host, keys: Path, every_s: float) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
        self._progress = self._home / "progress.json"
        self._here, self._there, self._keys, self._every_s = here, there, keys, every_s
        self._local = f"ipc://{self._home}/job.sock"
        self.endpoint = f"tcp://{here.address}:{PORT}"
        self.actors: dict[str, subprocess.Popen[str]] = {}
        self.learner = self._learn()
        for name in LOCAL:
            self._play(here, name, self._local, "-")
        for name in REMOTE:
            self._play(there, name, self.endpoint, str(keys / "join.key"))

    def used(self) -> dict[str, int]:
        """How many batches of each actor the learner has used."""
        try:
            return dict(json.loads(self._progress.read_text())["used"])
        except FileNotFoundError:
            return {}

    def learn_again(self) -> None:
        """Kill the learner and start it on the same address."""
        self.learner.kill()
        self.learner.wait()
        self._progress.unlink()
        self.learner = self._learn()

    def end(self) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
        """End the actors, then the learner; return what they say."""
        for actor in self.actors.values():
            actor.send_signal(signal.SIGTERM)
        told = {name: json.loads(actor.communicate(timeout=PATIENCE_S)[0]) for name, actor in self.actors.items()}
        self.learner.send_signal(signal.SIGTERM)
        return json.loads(self.learner.communicate(timeout=PATIENCE_S)[0].splitlines()[-1]), told

    def close(self) -> None:
        for process in (self.learner, *self.actors.values()):
            process.kill()
            process.wait()
        shutil.rmtree(self._home)

    def _learn(self) -> "subprocess.Popen[str]":
        words = (self._local, self.endpoint, str(self._keys / "server.key"), str(self._progress))
        started = self._here.python("-m", "tests.network.side", "learner", *words, stdout=subprocess.PIPE)
        assert started.stdout is not None
        assert started.stdout.readline() == "listening\n"
        return started

    def _play(self, host: Host, name: str, endpoint: str, key: str) -> None:
        words = ("actor", endpoint, key, name, str(self._every_s))
        self.actors[name] = host.python("-m", "tests.network.side", *words, stdout=subprocess.PIPE)


@pytest.fixture
def link(relayed: tuple[Host, Host, Relay]) -> Relay:
    return relayed[2]


@pytest.fixture
def training(relayed: tuple[Host, Host, Relay], keys: Path) -> Iterator[Training]:
    here, there, _ = relayed
    one = Training(here, there, keys, every_s=0.05)
    try:
        until(lambda: all(one.used().get(name, 0) > 5 for name in (*LOCAL, *REMOTE)), "all six feed the learner")
        yield one
    finally:
        one.close()


def more_from(training: Training, names: tuple[str, ...], since: dict[str, int]) -> bool:
    now = training.used()
    return all(now.get(name, 0) > since.get(name, 0) + 2 for name in names)


def all_used_once(training: Training) -> None:
    learner, actors = training.end()
    assert learner["twice"] == []
    for name, told in actors.items():
        assert told["acknowledged"] == told["sent"] == len(learner["used"][name]), name


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seconds", [60])
def test_after_a_link_was_down_the_remote_actors_are_back(training: Training, link: Relay, seconds: int) -> None:
    before = training.used()
    link.set(up=False)
    healed = time.monotonic() + seconds
    while time.monotonic() < healed:  # the learner never stops
        seen = training.used()
        until(lambda seen=seen: more_from(training, LOCAL, seen), "local actors feed it on")  # type: ignore[misc]
    during = training.used()
    link.set(up=True)
    until(lambda: more_from(training, REMOTE, during), "the remote actors are back")
    assert before.keys() == during.keys()
    all_used_once(training)


def test_with_delay_and_loss_all_go_on_and_nothing_is_used_twice(training: Training, link: Relay) -> None:
    link.set(delay_s=0.2, loss=0.01)
    seen = training.used()
    until(lambda: more_from(training, REMOTE, seen), "slower, but all of them")
    all_used_once(training)


def test_a_learner_that_comes_back_at_the_same_address_has_all_its_actors_again(training: Training) -> None:
    training.learn_again()
    until(lambda: more_from(training, (*LOCAL, *REMOTE), {}), "all six feed the new one")
    learner, actors = training.end()
    assert learner["twice"] == []
    assert all(len(learner["used"][name]) <= told["sent"] for name, told in actors.items())


def test_actors_that_are_killed_do_not_stop_the_others(training: Training) -> None:
    os.kill(training.actors.pop(REMOTE[0]).pid, signal.SIGKILL)
    seen = training.used()
    until(lambda: more_from(training, (*LOCAL, *REMOTE[1:]), seen), "the others go on")
    all_used_once(training)
