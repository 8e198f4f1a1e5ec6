"""`gpusched launch averaging` as a person has it: real processes, in a state directory of the test's own."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpusched.contract import READY_DIRECTORY, ready_name
from tests.cli.command import Command
from tests.workloads.averaging.reference import weights_after
from workloads.averaging.record import read_rows
from workloads.averaging.settings import Scheme, Settings

ROOT = Path(__file__).parents[3]
ACTORS = 2

pytestmark = pytest.mark.timeout(180)  # three starts of TensorFlow, perhaps on a busy machine


class Run:
    """One launch, whose results are in `folder`."""

    def __init__(self, home: Path, settings: Settings) -> None:
        home.mkdir(mode=0o700)
        self.command = Command(home)
        self.folder = self.command.state / "jobs" / "averaging-1"
        self.settings = settings
        options = [f"--{name.replace('_', '-')}={getattr(settings, name)}" for name in settings.__struct_fields__]
        self._process = self.command.start("launch", "averaging", "--procs", str(ACTORS), *options, cwd=ROOT)

    def succeeds(self) -> None:
        said, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, said

    def replica(self, name: str) -> dict[str, object]:
        replicas = self.command.job("averaging-1").get("replicas", [])
        return next((replica for replica in replicas if replica["name"] == name), {})

    def waits_for(self, file: Path) -> None:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert self._process.poll() is None, f"the launch ended without {file.name}"
            assert time.monotonic() < deadline, f"waited a minute in vain for {file.name}"
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        """Kill it once it has begun its work."""
        self.waits_for(self.folder / READY_DIRECTORY / ready_name(name, 0))
        os.kill(int(str(self.replica(name)["pid"])), signal.SIGKILL)

    def curve(self) -> list[tuple[int, int, float, float]]:
        return [row[1:] for row in read_rows(self.folder / "curve.csv")]

    def is_as_in_one_process(self) -> None:
        with np.load(self.folder / "weights.npz") as file:
            found = np.concatenate([file[name].ravel() for name in file.files if name != "counts"])
        np.testing.assert_allclose(found, weights_after(self.settings, ACTORS), atol=1e-5, rtol=0)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short path: sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="gs-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def runs(home: Path) -> Iterator[list[Run]]:  # after `home`, so that they end before it goes
    del home
    made: list[Run] = []
    yield made
    for run in made:
        run.command.end()


def started(runs: list[Run], home: Path, settings: Settings) -> Run:
    runs.append(Run(home / str(len(runs)), settings))
    return runs[-1]


@pytest.mark.parametrize("scheme", ["weights", "gradients"])
def test_a_launch_ends_where_one_process_ends_and_leaves_its_files(runs: list[Run], home: Path, scheme: Scheme) -> None:
    run = started(runs, home, Settings(scheme=scheme, rounds=60, seed=3))
    run.succeeds()
    run.is_as_in_one_process()
    curve = run.curve()
    assert [row[0] for row in curve] == list(range(1, 61))
    assert curve[-1][3] > 0.98
    assert list((run.folder / "tensorboard").iterdir())
    told = [json.loads(line) for line in (run.folder / "progress.jsonl").read_text().splitlines()]
    assert (told[-1]["step"], told[-1]["score"]) == (60, pytest.approx(curve[-1][3]))
    assert {"actor.0", "actor.1"} <= {name for line in told for name in line.get("replicas", {})}


def test_an_actor_that_is_killed_amid_the_run_changes_no_number_of_the_outcome(runs: list[Run], home: Path) -> None:
    run = started(runs, home, Settings(scheme="weights", rounds=300, local_steps=2, learning_rate=0.05))
    run.kill("actor.1")
    run.succeeds()
    assert run.replica("actor.1")["restarts"] == 1
    assert [row[0] for row in run.curve()] == list(range(1, 301))
    run.is_as_in_one_process()


def test_a_learner_that_is_killed_goes_on_from_its_weights_with_no_gap_in_the_curve(
    runs: list[Run], home: Path
) -> None:
    run = started(runs, home, Settings(scheme="gradients", rounds=300, learning_rate=0.05))
    run.waits_for(run.folder / "weights.npz")
    run.kill("learner.0")
    run.succeeds()
    assert run.replica("learner.0")["restarts"] == 1
    assert "going on from" in (run.folder / "logs" / "learner.0.log").read_text()
    assert [row[0] for row in run.curve()] == list(range(1, 301))
    run.is_as_in_one_process()


def test_one_seed_and_one_number_of_actors_give_one_curve(runs: list[Run], home: Path) -> None:
    settings = Settings(task="digits", scheme="weights", rounds=15, local_steps=2, seed=8)
    for _ in range(2):
        started(runs, home, settings).succeeds()
    one, other = (run.curve() for run in runs)
    np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)
    runs[0].is_as_in_one_process()
