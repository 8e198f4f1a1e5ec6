"""A node's part of a job, as a cluster would start it: a real process with two pipes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from gpusched.engines.cluster.keyring import fresh_keys, order_of
from gpusched.execution.nodes import learner_directory
from gpusched.model.cluster_job import LogPart, NodeMessage, NodeOrder, NodeShare, NodeStatus, Refused
from gpusched.model.status import JobState, JobStatus
from tests.engines.groups import a_group
from tests.patience import PATIENCE_S, until
from tests.ports import free_port

SHARES = (
    NodeShare(counts={"learner": 1, "actor": 1}, first={"learner": 0, "actor": 0}),
    NodeShare(counts={"learner": 0, "actor": 2}, first={"learner": 1, "actor": 1}),
)


class Started:
    """A node that was started; its input stays open."""

    def __init__(self, order: NodeOrder, home: Path) -> None:
        self.home = home
        env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSCHED_", "XDG_"))}
        env |= {"GPUSCHED_STATE_DIR": str(home / "state"), "GPUSCHED_RUNTIME_DIR": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpusched.engines.cluster.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env | {"GPUSCHED_LEASE_DIR": str(home / "leases")},
        )
        self.told: list[NodeMessage] = []
        self.say(msgspec.json.encode(order))

    def say(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def until(self, condition: Callable[[], object]) -> None:
        """Read what it tells until something holds of it, or it ends."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.told[-3:]}"
            assert time.monotonic() < deadline, self.told[-3:]
            if line.strip():
                self.told.append(msgspec.json.decode(line, type=NodeMessage))

    def ended(self) -> tuple[int, JobStatus | None]:
        """Read the rest; return its exit code and the last status."""
        assert self.process.stdout is not None
        self.told += [msgspec.json.decode(line, type=NodeMessage) for line in self.process.stdout if line.strip()]
        return self.process.wait(PATIENCE_S), self.status

    @property
    def status(self) -> JobStatus | None:
        found = [one.status for one in self.told if isinstance(one, NodeStatus)]
        return found[-1] if found else None

    def all_ready(self, *names: str) -> bool:
        replicas = self.status.replicas if self.status is not None else ()
        return [one.name for one in replicas if one.ready] == list(names)


@pytest.fixture
def orders(tmp_path: Path) -> list[NodeOrder]:
    """What each of two nodes is told."""
    job = tmp_path / "state" / "jobs" / "toy-1"
    job.mkdir(parents=True)
    order = NodeOrder(
        group=a_group(*SHARES, cwd=str(tmp_path)),
        job="toy-1",
        directory=str(job),
        number=0,
        learner=f"tcp://127.0.0.1:{free_port()}",
        incarnation=1,
        keys=fresh_keys("toy-1"),
    )
    return [order_of(order, 0), order_of(order, 1)]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[NodeOrder], Started]]:
    homes = tmp_path_factory.mktemp("n")
    started: list[Started] = []

    def begin(order: NodeOrder) -> Started:
        home = homes / str(order.number)
        home.mkdir(mode=0o700, exist_ok=True)
        started.append(Started(order, home))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait()


def test_two_nodes_are_one_job_whose_actors_have_names_and_ranks_of_the_whole(
    orders: list[NodeOrder], start: Callable[[NodeOrder], Started]
) -> None:
    first, second = map(start, orders)
    first.until(lambda: first.all_ready("learner.0", "actor.0"))
    second.until(lambda: second.all_ready("actor.1", "actor.2"))
    learner = learner_directory(Path(orders[0].directory))
    ranks = {"actor.0": 0, "actor.1": 1, "actor.2": 2}
    until(lambda: json.loads((learner / "fed.json").read_text()) == ranks, "the learner has a batch of each")
    (learner / "end").touch()
    assert first.ended()[0] == 0
    code, status = second.ended()
    assert code == 0, "its learner has said that it is over"
    assert status is not None
    assert (status.id, status.state) == ("toy-1", JobState.SUCCEEDED)
    assert {one.replica for one in first.told if isinstance(one, LogPart)} >= {"learner.0", "actor.0"}


@pytest.mark.parametrize("how", ["a line", "the end of its input", "SIGTERM"])
def test_a_node_ends_in_order_when_it_is_told_so_or_nobody_is_there(
    orders: list[NodeOrder], start: Callable[[NodeOrder], Started], how: str
) -> None:
    node = start(orders[0])
    node.until(lambda: node.all_ready("learner.0", "actor.0"))
    assert node.process.stdin is not None
    if how == "a line":
        node.say(b"stop")
    elif how == "SIGTERM":
        node.process.send_signal(signal.SIGTERM)
    else:
        node.process.stdin.close()
    code, status = node.ended()
    assert code == 1
    assert status is not None
    assert status.state is JobState.CANCELLED


def test_a_node_that_nobody_reads_ends(orders: list[NodeOrder], start: Callable[[NodeOrder], Started]) -> None:
    node = start(orders[0])
    node.until(lambda: node.all_ready("learner.0", "actor.0"))
    assert node.process.stdout is not None
    node.process.stdout.close()
    assert node.process.wait(PATIENCE_S) == 1


def test_a_node_waits_for_its_learner_and_without_it_ends_its_actors_and_leaves_nothing(
    orders: list[NodeOrder], start: Callable[[NodeOrder], Started]
) -> None:
    impatient = msgspec.structs.replace(orders[1].group, patience_s=8)
    node = start(msgspec.structs.replace(orders[1], group=impatient))
    begun = time.monotonic()
    node.until(lambda: node.status is not None and node.status.state is JobState.RUNNING)
    node.until(lambda: time.monotonic() > begun + impatient.patience_s + 2)
    learner = start(orders[0])
    node.until(lambda: node.all_ready("actor.1", "actor.2"))
    assert node.status is not None
    assert not any(one.restarts for one in node.status.replicas), "it had patience with a learner that came late"
    for child in psutil.Process(learner.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    learner.process.kill()
    code, status = node.ended()
    assert code == 1
    assert status is not None
    assert status.state is JobState.FAILED
    assert [one.unheard for one in node.told if isinstance(one, NodeStatus)][-1], "it is to be started again"
    assert not list(node.home.glob("nodes/*"))


def test_only_the_learners_node_has_the_learners_keys_and_who_is_killed_leaves_none(
    orders: list[NodeOrder], start: Callable[[NodeOrder], Started]
) -> None:
    first, second = map(start, orders)
    first.until(lambda: first.all_ready("learner.0", "actor.0"))
    second.until(lambda: second.all_ready("actor.1", "actor.2"))

    def left() -> list[str]:
        return [path.name for path in second.home.glob("nodes/*/*/keys/*")]

    assert left() == ["join.key"]
    second.process.kill()
    deadline = time.monotonic() + PATIENCE_S
    while left():
        assert time.monotonic() < deadline, "its supervisor takes the key with it"
        time.sleep(0.05)
    before = list(second.home.glob("nodes/*"))
    again = start(msgspec.structs.replace(orders[1], incarnation=2))
    again.until(lambda: again.all_ready("actor.1", "actor.2"))
    assert len(list(second.home.glob("nodes/*"))) == len(before) == 1, "what was left there is swept away"


def test_what_a_node_cannot_do_is_told_in_words(orders: list[NodeOrder], start: Callable[[NodeOrder], Started]) -> None:
    group = msgspec.structs.replace(orders[0].group, gpus=2)
    node = start(msgspec.structs.replace(orders[0], group=group))
    assert node.ended()[0] == 5
    refused = [one.message for one in node.told if isinstance(one, Refused)]
    assert len(refused) == 1
    assert "2 GPUs were asked for, and none is named by CUDA_VISIBLE_DEVICES or SLURM_STEP_GPUS" in refused[0]


def test_a_second_learner_of_the_same_job_is_not_started(
    orders: list[NodeOrder], start: Callable[[NodeOrder], Started]
) -> None:
    first = start(orders[0])
    first.until(lambda: first.all_ready("learner.0", "actor.0"))
    second = start(msgspec.structs.replace(orders[0], incarnation=2))
    second.say(b"stop")  # else it would wait for the first, which may be about to end
    second.ended()
    assert ["still runs" in one.message for one in second.told if isinstance(one, Refused)] == [True]
