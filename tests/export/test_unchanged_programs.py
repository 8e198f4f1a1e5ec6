"""Programs of a workload run in the environment that manifests give them, as a kubelet or Compose would start them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpusched.execution.network import make_keys
from gpusched.export import compose, kubernetes
from tests.export.exporting import exported, literal, only
from tests.patience import PATIENCE_S

ACTORS = 3
LEARNER = """
import json
import numpy as np
from gpusched import runtime
from gpusched.channel import Learner
me, heard = runtime.current_replica(), {}
with Learner() as learner:
    (me.run_dir / "endpoint").write_text(learner.listening or learner.endpoint)
    learner.publish({"w": np.zeros(1, np.float32)})
    while len(heard) < ACTORS:
        batch = learner.get()
        heard[batch.actor.partition("@")[0]] = [batch.meta["rank"], batch.meta["count"]]
    (me.run_dir / "heard.json").write_text(json.dumps(heard))
"""
ACTOR = """
import numpy as np
from gpusched import runtime
from gpusched.channel import Actor, LearnerGone
me, version = runtime.current_replica(), 0
try:
    with Actor() as actor:
        actor.weights()
        actor.send({"x": np.zeros(1, np.float32)}, meta={"rank": me.rank, "count": me.role_count})
        actor.weights(newer_than=1)
except LearnerGone:
    pass
"""
HEARD = {f"actor.{rank}": [rank, ACTORS] for rank in range(ACTORS)}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="g") as path:
        yield Path(path)


@pytest.fixture
def workload(place: Path) -> str:
    (place / "learner.py").write_text(LEARNER.replace("ACTORS", str(ACTORS)))
    (place / "actor.py").write_text(ACTOR)
    roles = [
        f'[roles.{role}]\ncommand = ["{{python}}", "{place}/{role}.py"]\nmemory = {{ min = "512MiB" }}\n'
        for role in ("learner", "actor")
    ]
    (place / "workload.toml").write_text('name = "toy"\n' + "".join(roles))
    return str(place / "workload.toml")


class Containers:
    """Processes that have nothing of this one's environment but where Python is; they end with the `with` block."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        base = {"PATH": path, "PYTHONPATH": os.environ.get("PYTHONPATH", "."), "HOME": "/nonexistent"}
        process = subprocess.Popen(argv, env={**base, **env})
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._processes.append(process)

    def said(self, file: Path) -> str:
        """What one of them wrote into a file, once it has; they must live meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not (file.exists() and file.read_text()):
            assert {process.poll() for process in self._processes} == {None}
            assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain for {file}"
            time.sleep(0.02)
        return file.read_text()

    def codes(self) -> list[int]:
        return [process.wait(PATIENCE_S) for process in self._processes]


def pods(job: Any, changed: Mapping[str, str], root: Path, keys: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What a kubelet would start for a Job: with its volumes, its index, and variables in place."""
    for index in range(job["spec"]["completions"]):
        volumes = root / f"{job['metadata']['name']}-{index}"
        for volume in ("run", "secret", "keys"):
            (volumes / volume).mkdir(parents=True)
        text = json.dumps(job["spec"]["template"]["spec"])
        for old, new in {"/gpusched/": f"{volumes}/", **changed}.items():
            text = text.replace(old, new)
        pod = json.loads(text)
        for item in pod["volumes"][1]["secret"]["items"]:
            shutil.copy(keys / item["key"], volumes / "secret" / item["path"])
            (volumes / "secret" / item["path"]).chmod(0o644)
        [container] = pod["containers"]
        env = {one["name"]: literal(one.get("value", "")) for one in container["env"]}
        yield [literal(word) for word in container["command"]], env | {"JOB_COMPLETION_INDEX": str(index)}


def test_pods_find_the_learner_by_its_service_and_have_the_ranks_of_the_plan(workload: str, place: Path) -> None:
    keys = place / "keys"
    make_keys(keys, "toy")
    learner, *actors = only(
        kubernetes(exported(workload, machine="2x16GiB", procs=str(ACTORS)), "none", str(keys)).documents, "Job"
    )
    changed = {"tcp://0.0.0.0:5555": "tcp://127.0.0.1:0", "/tmp/gpusched": f"{place}/sockets"}
    run = place / "toy-learner-0" / "run"

    with ExitStack() as stack:
        containers = Containers(stack)
        for argv, env in pods(learner, changed, place, keys):
            containers.start(argv, env)
        service = {"tcp://toy-learner:5555": containers.said(run / "endpoint")}
        for job in actors:
            for argv, env in pods(job, service, place, keys):
                containers.start(argv, env)
        assert containers.codes() == [0] * (1 + ACTORS)

    assert json.loads((run / "heard.json").read_text()) == HEARD
    assert len(actors) == 2, "one Job begins with a rank that is not 0"


def test_services_find_the_learner_by_its_socket_and_have_the_ranks_of_the_plan(workload: str, place: Path) -> None:
    [document] = compose(exported(workload, machine="2x16GiB", procs=str(ACTORS))).documents
    found = json.loads(json.dumps(document).replace("/gpusched/run", f"{place}/run"))
    (place / "run").mkdir()

    with ExitStack() as stack:
        containers = Containers(stack)
        for service in found["services"].values():
            env = {name: literal(value) for name, value in service["environment"].items()}
            containers.start([literal(word) for word in service["command"]], env)
        assert containers.codes() == [0] * (1 + ACTORS)

    assert json.loads((place / "run" / "heard.json").read_text()) == HEARD
