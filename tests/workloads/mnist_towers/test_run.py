"""`gpusched launch mnist_towers` as a person has it, on two logical CPU devices."""

import msgspec
import pytest

from tests.workloads.launched import Launched, Launches
from workloads.common.record import Row, read_rows
from workloads.mnist_towers.settings import Settings

pytestmark = pytest.mark.timeout(1200)  # two starts of TensorFlow, perhaps on a busy machine


def started(launches: Launches, settings: Settings) -> Launched:
    return launches.start("mnist_towers", None, settings)  # it has no actors


def curve(run: Launched) -> list[Row]:
    return read_rows(run.folder / "curve.csv")


def test_mirrored_knows_the_digits_and_leaves_its_files(launches: Launches) -> None:
    run = started(launches, Settings(style="mirrored", passes=24, split="3,1"))
    run.succeeds()
    rows = curve(run)
    assert [row[1:3] for row in rows] == [(22 * number, number) for number in range(1, 25)]
    assert rows[-1][4] >= 0.97
    assert "hidden/kernel: CPU:1, CPU:2" in run.log("learner.0")
    assert list((run.folder / "tensorboard").iterdir())
    told = run.progress()
    assert (told[-1]["step"], told[-1]["score"]) == (528, rows[-1][4])
    assert any(line.get("replicas", {}).get("learner.0", {}).get("steps_per_s") for line in told)


def test_towers_that_are_killed_go_on_with_the_curve_of_those_that_are_not(launches: Launches) -> None:
    settings = Settings(style="towers", variables="least-loaded", seed=4)
    cut = started(launches, msgspec.structs.replace(settings, passes=0))  # without an end, so that no kill is too late
    cut.waits_for(cut.folder / "weights.npz")
    cut.kill("learner.0")
    cut.begins("learner.0", 1)
    assert "going on from" in cut.log("learner.0")
    cut.waits_until(lambda: len(curve(cut)) >= 10, "10 passes")
    cut.command.end()
    whole = started(launches, msgspec.structs.replace(settings, passes=18))
    whole.succeeds()
    rows = curve(whole)
    assert rows[-1][4] >= 0.97
    assert "gradients: CPU:1, CPU:2" in whole.log("learner.0")
    assert [row[1:] for row in curve(cut)[:10]] == [row[1:] for row in rows[:10]]
