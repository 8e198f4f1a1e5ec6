"""`gpusched launch averaging` as a person has it."""

import numpy as np
import pytest

from tests.workloads.averaging.reference import weights_after
from tests.workloads.launched import Launched, Launches
from workloads.averaging.settings import Scheme, Settings
from workloads.common.record import read_rows

ACTORS = 2

pytestmark = pytest.mark.timeout(1200)  # three starts of TensorFlow, perhaps on a busy machine


def started(launches: Launches, settings: Settings) -> Launched:
    return launches.start("averaging", ACTORS, settings)


def curve(run: Launched) -> list[tuple[int, int, float, float]]:
    return [row[1:] for row in read_rows(run.folder / "curve.csv")]


def is_as_in_one_process(run: Launched, settings: Settings) -> None:
    with np.load(run.folder / "weights.npz") as file:
        found = np.concatenate([file[name].ravel() for name in file.files if name != "counts"])
    np.testing.assert_allclose(found, weights_after(settings, ACTORS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scheme", ["weights", "gradients"])
def test_a_launch_ends_where_one_process_ends_and_leaves_its_files(launches: Launches, scheme: Scheme) -> None:
    settings = Settings(scheme=scheme, rounds=60, seed=3)
    run = started(launches, settings)
    run.succeeds()
    is_as_in_one_process(run, settings)
    rows = curve(run)
    assert [row[0] for row in rows] == list(range(1, 61))
    assert rows[-1][3] > 0.98
    assert list((run.folder / "tensorboard").iterdir())
    told = run.progress()
    assert (told[-1]["step"], told[-1]["score"]) == (60, pytest.approx(rows[-1][3]))
    assert {"actor.0", "actor.1"} <= run.replicas_told()


def test_an_actor_that_is_killed_amid_the_run_changes_no_number_of_the_outcome(launches: Launches) -> None:
    settings = Settings(scheme="weights", rounds=300, local_steps=2, learning_rate=0.05)
    run = started(launches, settings)
    run.kill("actor.1")
    run.succeeds()
    assert run.replica("actor.1")["restarts"] == 1
    assert [row[0] for row in curve(run)] == list(range(1, 301))
    is_as_in_one_process(run, settings)


def test_a_learner_that_is_killed_goes_on_from_its_weights_with_no_gap_in_the_curve(launches: Launches) -> None:
    settings = Settings(scheme="gradients", rounds=300, learning_rate=0.05)
    run = started(launches, settings)
    run.waits_for(run.folder / "weights.npz")
    run.kill("learner.0")
    run.succeeds()
    assert run.replica("learner.0")["restarts"] == 1
    assert "going on from" in run.log("learner.0")
    assert [row[0] for row in curve(run)] == list(range(1, 301))
    is_as_in_one_process(run, settings)


def test_one_seed_and_one_number_of_actors_give_one_curve(launches: Launches) -> None:
    settings = Settings(task="digits", scheme="weights", rounds=15, local_steps=2, seed=8)
    runs = []
    for _ in range(2):
        runs.append(started(launches, settings))
        runs[-1].succeeds()
    one, other = (curve(run) for run in runs)
    np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)
    is_as_in_one_process(runs[0], settings)
