"""`gpusched launch mnist_towers` as a person has it: real processes, in a state directory of the test's own."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusched.contract import READY_DIRECTORY, ready_name
from tests.cli.command import Command
from workloads.mnist_towers.record import Row, read_rows

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(300)  # two starts of TensorFlow, perhaps on a busy machine


class Run:
    """One launch, whose results are in `folder`."""

    def __init__(self, home: Path, *options: str) -> None:
        home.mkdir(mode=0o700)
        self.command = Command(home)
        self.folder = self.command.state / "jobs" / "mnist_towers-1"
        self._process = self.command.start("launch", "mnist_towers", *options, cwd=ROOT)

    def succeeds(self) -> None:
        said, _ = self._process.communicate(timeout=150)
        assert self._process.returncode == 0, said

    def learner(self) -> dict[str, object]:
        (replica,) = self.command.job("mnist_towers-1")["replicas"]
        return dict(replica)

    def log(self) -> str:
        return (self.folder / "logs" / "learner.0.log").read_text()

    def waits_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 100
        while not holds():
            assert self._process.poll() is None, f"the launch ended without {what}"
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the learner once it has saved something."""
        self.waits_until((self.folder / READY_DIRECTORY / ready_name("learner.0", 0)).exists, "a learner")
        self.waits_until((self.folder / "weights.npz").exists, "weights")
        os.kill(int(str(self.learner()["pid"])), signal.SIGKILL)

    def curve(self) -> list[Row]:
        return read_rows(self.folder / "curve.csv")

    def outcome(self) -> list[tuple[int, int, float, float]]:
        """All of the curve but its seconds."""
        return [row[1:] for row in self.curve()]


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


def started(runs: list[Run], home: Path, *options: str) -> Run:
    runs.append(Run(home / str(len(runs)), *options))
    return runs[-1]


def test_mirrored_knows_the_digits_and_leaves_its_files(runs: list[Run], home: Path) -> None:
    run = started(runs, home, "--style=mirrored", "--passes=18", "--split=3,1")
    run.succeeds()
    curve = run.curve()
    assert [row[1:3] for row in curve] == [(22 * number, number) for number in range(1, 19)]
    assert curve[-1][4] >= 0.97
    assert "hidden/kernel: CPU:1, CPU:2" in run.log()
    assert list((run.folder / "tensorboard").iterdir())
    told = [json.loads(line) for line in (run.folder / "progress.jsonl").read_text().splitlines()]
    assert (told[-1]["step"], told[-1]["score"]) == (396, curve[-1][4])
    assert any(line.get("replicas", {}).get("learner.0", {}).get("steps_per_s") for line in told)


def test_towers_that_are_killed_go_on_with_the_curve_of_those_that_are_not(runs: list[Run], home: Path) -> None:
    options = ("--style=towers", "--variables=least-loaded", "--seed=4")
    cut = started(runs, home, *options, "--passes=0")  # without an end, so that no kill comes too late
    cut.kill()
    cut.waits_until(lambda: cut.learner()["restarts"] == 1 and "going on from" in cut.log(), "a restart")
    cut.waits_until(lambda: len(cut.curve()) >= 10, "10 passes")
    cut.command.end()
    whole = started(runs, home, *options, "--passes=18")
    whole.succeeds()
    assert whole.curve()[-1][4] >= 0.97
    assert "gradients: CPU:1, CPU:2" in whole.log()
    assert cut.outcome()[:10] == whole.outcome()[:10]
