"""How the process ends that has a node do its part: it decides whether the part is started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpusched.engines.cluster.node_recorder import NodeRecorder, announce
from gpusched.execution.directory import JobDirectory, complete
from gpusched.model.cluster_job import ClusterJob, NodeMessage, NodeOrder, NodeShare, NodeStatus, Refused
from gpusched.model.status import JobState, ReplicaState
from tests.engines.groups import a_group
from tests.engines.test_nodes import a_node
from tests.patience import PATIENCE_S

AGAIN = -signal.SIGKILL
ALONE = a_group(
    NodeShare(counts={"learner": 1, "actor": 0}, first={"learner": 0, "actor": 0}),
    NodeShare(counts={"learner": 0, "actor": 1}, first={"learner": 1, "actor": 5}),
    NodeShare(counts={"learner": 0, "actor": 1}, first={"learner": 1, "actor": 6}),
)
WITH_ACTORS = a_group(
    NodeShare(counts={"learner": 1, "actor": 4}, first={"learner": 0, "actor": 0}),
    NodeShare(counts={"learner": 0, "actor": 4}, first={"learner": 1, "actor": 4}),
)
SCRIPT = """
import signal, sys, threading
import msgspec
from gpusched.engines.cluster.node_tasks import end_like
from gpusched.model.cluster_job import NodeOrder
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
print(flush=True)
end_like(msgspec.json.decode(sys.argv[1], type=NodeOrder), 0, lambda: None, asked.is_set)
"""

Step = Callable[..., "subprocess.Popen[bytes]"]


def status(state: JobState, attempt: int = 0, *, unheard: bool = False) -> NodeStatus:
    end = ReplicaState.FAILED if state is JobState.FAILED and not unheard else ReplicaState.RUNNING
    actor = msgspec.structs.replace(a_node("actor.0").replicas[0], state=end)
    part = msgspec.structs.replace(a_node(state=state), attempt=attempt, replicas=(actor,))
    return NodeStatus(host="n1", status=part, unheard=unheard)


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    """Starts a step of the node `number`, which says `told` and ends."""
    complete(JobDirectory(tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    announced: list[int] = []

    def begin(number: int, *told: NodeMessage, group: ClusterJob = WITH_ACTORS) -> "subprocess.Popen[bytes]":
        if not announced:
            announce(JobDirectory(tmp_path), group)
        announced.append(number)
        order = NodeOrder(
            group=group, job="toy-1", directory=str(tmp_path), number=number, learner="x", incarnation=1, keys={}
        )
        argv = [sys.executable, "-c", SCRIPT, msgspec.json.encode(order).decode()]
        started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert started[-1].stdin is not None
        assert started[-1].stdout is not None
        started[-1].stdout.readline()
        started[-1].stdin.write(b"".join(msgspec.json.encode(one) + b"\n" for one in told))
        started[-1].stdin.close()
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        one.wait()


def learner(job: Path, incarnation: int) -> None:
    """Have the learner's node tell that its part runs."""
    reader, writer = os.pipe()
    os.write(writer, msgspec.json.encode(status(JobState.RUNNING, incarnation - 1)) + b"\n")
    os.close(writer)
    NodeRecorder(job, 0, incarnation).receive(reader, 5)
    os.close(reader)


def stays(process: "subprocess.Popen[bytes]", job: Path) -> bool:
    """Whether it lives on though it has written down that its node is over."""
    deadline = time.monotonic() + PATIENCE_S
    while b"actor.0" not in (job / "nodes" / "1.json").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return process.poll() is None


@pytest.mark.parametrize(
    ("number", "told", "code"),
    [
        (0, status(JobState.SUCCEEDED), 0),
        (0, status(JobState.FAILED), 1),
        (0, status(JobState.CANCELLED), 1),
        (0, status(JobState.RUNNING), AGAIN),
        (0, Refused(message="it never fits"), 5),
        (0, Refused(message="not yet", yet=True), AGAIN),
        (1, status(JobState.CANCELLED), AGAIN),
        (1, status(JobState.RUNNING), AGAIN),
        (1, status(JobState.FAILED, unheard=True), AGAIN),
        (1, Refused(message="no such directory"), AGAIN),
    ],
)
def test_a_step_ends_by_a_signal_where_its_node_is_to_begin_anew(
    step: Step, number: int, told: NodeMessage, code: int
) -> None:
    assert step(number, told).wait(PATIENCE_S) == code


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_a_node_that_has_ended_by_itself_begins_anew_with_another_learner(
    step: Step, tmp_path: Path, state: JobState
) -> None:
    process = step(1, status(state))
    learner(tmp_path, 1)
    assert stays(process, tmp_path)
    learner(tmp_path, 2)
    assert process.wait(PATIENCE_S) == AGAIN


@pytest.mark.parametrize(("state", "code"), [(JobState.SUCCEEDED, 0), (JobState.FAILED, 1)])
def test_a_node_that_has_ended_by_itself_is_over_with_the_job(
    step: Step, tmp_path: Path, state: JobState, code: int
) -> None:
    process = step(1, status(state))
    assert stays(process, tmp_path)
    process.terminate()
    assert process.wait(PATIENCE_S) == code


def test_where_the_learner_has_nobody_on_its_own_node_a_node_fails_once_all_others_have(
    step: Step, tmp_path: Path
) -> None:
    one = step(1, status(JobState.FAILED), group=ALONE)
    assert stays(one, tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(1.5)
    assert [step(2, status(JobState.FAILED), group=ALONE).wait(PATIENCE_S), one.wait(PATIENCE_S)] == [1, 1]
