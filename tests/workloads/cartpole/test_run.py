"""`gpusched launch cartpole` as a person has it, with small settings, and what `plan` says of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cli.command import Command
from tests.workloads.launched import Launched, Launches
from workloads.cartpole.settings import Scheme, Settings
from workloads.common.record import Row, read_rows

ACTORS = 2
MACHINE = "p3.8xlarge"
SMALL = Settings(
    scheme="average",
    target=0,
    steps=4000,
    games=4,
    play=4,
    plays=2,
    updates=4,
    batch=16,
    memory=200,
    target_every=10,
    minutes=0,
)

pytestmark = pytest.mark.timeout(1200)  # several starts of TensorFlow, perhaps on a busy machine


def started(launches: Launches, settings: Settings) -> Launched:
    return launches.start("cartpole", ACTORS, settings)


def rows(run: Launched) -> list[Row]:
    return read_rows(run.folder / "scores.csv")


def evaluation(run: Launched) -> dict[str, Any]:
    return dict(json.loads((run.folder / "evaluation.json").read_text()))


def saved(run: Launched) -> dict[str, NDArray[Any]]:
    with np.load(run.folder / "weights.npz") as file:
        return {name: file[name] for name in file.files if name != "counts"}  # the counts have seconds


@pytest.mark.parametrize(("scheme", "counts"), [("central", [1, 0, 0, 0]), ("average", [0, 0, 0, 0])])
def test_no_actor_is_given_a_device_and_the_learner_only_one_if_it_learns(
    scheme: Scheme, counts: list[int], tmp_path: Path
) -> None:
    said = Command(tmp_path).run("plan", "--workload", "cartpole", "--machine", MACHINE, "--json", "--scheme", scheme)
    plan = json.loads(said.stdout)
    devices = {replica["name"]: replica["device_index"] for replica in plan["replicas"]}
    assert devices.pop("learner.0") == (0 if scheme == "central" else None)
    assert set(devices) == {f"actor.{rank}" for rank in range(4)}
    assert set(devices.values()) == {None}
    assert plan["counts"] == counts


def test_one_learner_learns_from_what_all_actors_play_until_its_target_and_leaves_its_files(launches: Launches) -> None:
    run = started(launches, Settings(target=150, minutes=0))
    run.succeeds()
    found = evaluation(run)
    assert (found["games"], found["mean"] > 100) == (100, True), "of games that did not end it, so perhaps below 150"
    assert rows(run)[-1][4] >= 150
    for name in ("weights.npz", "learning_curve.png"):
        assert (run.folder / name).stat().st_size > 0
    assert list((run.folder / "tensorboard").iterdir())
    last = run.progress()[-1]
    assert str(last["note"]).startswith("solved after")
    assert (last["step"], last["score"]) == (found["steps"], pytest.approx(rows(run)[-1][4]))
    assert run.replicas_told() <= {"actor.0", "actor.1"}, "one may be so late that it is solved without it"
    assert run.replicas_told()


@pytest.mark.slow
def test_averaged_actors_solve_the_task(launches: Launches) -> None:
    run = launches.start("cartpole", 4, Settings(scheme="average", seed=1, minutes=0))
    run.succeeds()
    assert rows(run)[-1][4] >= 475
    assert str(run.progress()[-1]["note"]).startswith("solved after")


def test_with_one_learner_whoever_is_killed_is_back_and_learning_goes_on(launches: Launches) -> None:
    run = started(launches, Settings(target=0, minutes=0))
    run.kill("actor.1")
    run.begins("actor.1", 1)
    run.waits_until(lambda: len(rows(run)) >= 1, "the first line of scores.csv")
    run.kill("learner.0")
    run.begins("learner.0", 1)
    assert "going on from" in run.log("learner.0")
    steps = max([0, *(row[1] for row in rows(run))])
    run.waits_until(lambda: any(row[1] > steps for row in rows(run)), "further lines of scores.csv")
    run.stops_when_asked()
    assert evaluation(run)["games"] == 100


def test_averaged_actors_give_one_curve_for_one_seed_whoever_is_killed_amid_the_run(launches: Launches) -> None:
    whole = started(launches, SMALL)
    whole.succeeds()
    run = started(launches, SMALL)
    run.kill("actor.1")
    run.begins("actor.1", 1)
    run.kill("learner.0")
    run.succeeds()
    assert [run.replica(name)["restarts"] for name in ("learner.0", "actor.0", "actor.1")] == [1, 0, 1]
    assert [row[2] for row in rows(whole)] == list(range(1, len(rows(whole)) + 1))
    assert whole.replicas_told() == {"actor.0", "actor.1"}
    assert [row[1:] for row in rows(run)] == [row[1:] for row in rows(whole)]
    assert saved(run).keys() == saved(whole).keys()
    for name, array in saved(run).items():
        np.testing.assert_array_equal(array, saved(whole)[name])
    assert evaluation(run)["mean"] == evaluation(whole)["mean"]
