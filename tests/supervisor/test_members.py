"""A node's actors end, all of them, when their learner is lost to them: their node was cut off, or replaced."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpusched.channel import Actor
from gpusched.environment import identity_environment
from gpusched.execution.hosts import addresses, key_directory
from gpusched.execution.network import prepare_network
from gpusched.joining.keys import make_server_key, new_key
from gpusched.model.job import Listening, Network, NodeActors
from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import JOB_TERMINAL, ExitReason, JobState
from gpusched.runtime import ready_name
from tests.patience import PATIENCE_S, until
from tests.supervisor.host import Host, Job, start
from tests.supervisor.specs import CHILDREN, python, replica

ACTOR = (sys.executable, str(CHILDREN / "member.py"))


HERE = Listening(endpoint="tcp://127.0.0.1:0", incarnation=1)


@pytest.fixture
def first_node() -> Iterator[Path]:
    """The directory of the launch on its learner's node, with its keys; its path is short, as a socket's must be."""
    path = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    make_server_key(key_directory(path, HERE), "snake-1")
    new_key(key_directory(path, HERE), "join")
    yield path
    shutil.rmtree(path)


def environment(one: ReplicaSpec, network: Network, directory: Path) -> dict[str, str]:
    where = addresses(network, directory, directory / "s", one.replica, "learner")
    return identity_environment(
        one.replica, where, job="snake-1", role_count=11, run_dir=str(directory), settings=b"{}"
    )


@pytest.fixture
def learner(first_node: Path) -> Iterator["subprocess.Popen[str]"]:
    told = environment(replica("learner.0"), HERE, first_node)
    argv = [sys.executable, str(CHILDREN / "learner.py")]
    with subprocess.Popen(argv, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def member(learner: "subprocess.Popen[str]", first_node: Path, patience_s: int) -> NodeActors:
    assert learner.stdout is not None
    endpoint, key = learner.stdout.readline().strip(), str(key_directory(first_node, HERE) / "join.key")
    return NodeActors(endpoint=endpoint, job="snake-1", incarnation=1, key=key, patience_s=patience_s)


def other_node(host: Host, network: NodeActors) -> Job:
    """Return a node of which one actor is well, one hangs, and one is deaf; if they gave up meanwhile, it is over."""
    deaf = python("ignore_term.py")
    replicas = (replica("actor.8", ACTOR), replica("actor.9", (*ACTOR, "hang")), replica("actor.10", deaf))
    one = host.prepare(*replicas, network=network)
    prepare_network(one.directory, "snake", b"{}", network)
    told = [
        msgspec.structs.replace(each, env=environment(each, network, one.directory.path), cwd=str(CHILDREN))
        for each in replicas
    ]
    one.directory.write_spec(msgspec.structs.replace(one.directory.read_spec(), replicas=tuple(told)))
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))

    def begun() -> bool:
        sent = [(one.directory.ready / ready_name(name, 0)).exists() for name in ("actor.8", "actor.9")]
        return all(sent) and "deaf\n" in one.output("actor.10")

    until(lambda: begun() or one.status.state in JOB_TERMINAL, "all have begun")
    return one


def assert_all_were_ended(one: Job) -> None:
    status = one.wait_ended()
    assert (status.state, str(status.message).partition(":")[0]) == (JobState.FAILED, "the actors gave up")
    assert {one.replica(f"actor.{rank}").exit for rank in (9, 10)} == {ExitReason(kind="stopped")}
    assert [one.replica(f"actor.{rank}").restarts for rank in (8, 9, 10)] == [0, 0, 0]
    one.wait_gone()


def test_a_node_that_hears_nothing_of_the_learner_ends_all_its_replicas(
    host: Host, learner: "subprocess.Popen[str]", first_node: Path
) -> None:
    one = other_node(host, member(learner, first_node, patience_s=2))
    learner.send_signal(signal.SIGSTOP)
    assert_all_were_ended(one)


def test_a_node_whose_actors_run_elsewhere_by_now_ends_all_its_replicas(
    host: Host, learner: "subprocess.Popen[str]", first_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = member(learner, first_node, patience_s=1000)
    one = other_node(host, network)
    again = msgspec.structs.replace(network, incarnation=2)
    for name, value in environment(replica("actor.8"), again, first_node).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUSCHED_KEYS", network.key or "")
    with Actor() as later:
        assert later.send({"x": np.zeros(1, np.uint8)}, timeout=PATIENCE_S)
        assert_all_were_ended(one)
        assert later.send({"x": np.zeros(1, np.uint8)}, timeout=PATIENCE_S)
