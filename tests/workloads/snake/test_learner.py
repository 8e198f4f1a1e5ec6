"""How training ends when something is missing, and which options it takes."""

import sys
from pathlib import Path
from typing import NamedTuple

import keras
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from workloads.common.record import read_rows
from workloads.common.weights import Weights
from workloads.snake.algorithm import Played
from workloads.snake.genetic.algorithm import Evaluation, Genetic
from workloads.snake.settings import Settings
from workloads.snake.training import Training


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("GPUSCHED_RUN_DIR", str(tmp_path))
    return Training(Settings(network="small", inputs="frame"), tmp_path, 0)


def test_without_matplotlib_the_weights_are_kept_and_it_says_what_is_missing(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    training.finish()
    assert (tmp_path / "weights.npz").exists()
    assert "gpusched's extra `tensorflow`" in capsys.readouterr().err


def test_the_largest_seed_is_one_that_keras_takes() -> None:
    largest = 2**32 - 1
    keras.utils.set_random_seed(msgspec.convert({"seed": largest}, Settings).seed)
    with pytest.raises(msgspec.ValidationError, match="seed"):
        msgspec.convert({"seed": largest + 1}, Settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"algo": "genetic", "inference": "learner"}, "--inference goes with --algo a2c, not genetic"),
        ({"algo": "qlearning", "inference": "learner"}, "--inference goes with --algo a2c, not qlearning"),
        ({"algo": "genetic", "inputs": "frame"}, "--inputs goes with --algo a2c or qlearning, not genetic"),
        ({"algo": "genetic", "games": 12}, "--games goes with --algo a2c or qlearning, not genetic"),
        ({"algo": "qlearning", "population": 12}, "--population goes with --algo genetic, not qlearning"),
        ({"algo": "genetic", "learning_rate": 0.1}, "--learning-rate goes with --algo a2c or qlearning, not genetic"),
        ({"algo": "genetic", "weights": "weights.npz"}, "--weights goes with --algo a2c or qlearning, not genetic"),
    ],
)
def test_an_option_that_does_not_go_with_the_algorithm_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        msgspec.convert(given, Settings).check()
    msgspec.convert({"algo": given["algo"]}, Settings).check()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"minutes": 3}, "--minutes is for learning"),
        ({"learning_rate": 0.1}, "--learning-rate is for learning"),
        ({"evaluate": "none.npz"}, "--evaluate: there is no file none.npz"),
    ],
)
def test_with_evaluate_nothing_is_learnt(given: dict[str, object], told: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.npz"
    weights.touch()
    msgspec.convert({"evaluate": str(weights)}, Settings).check()
    with pytest.raises(ValueError, match=told):
        msgspec.convert({"evaluate": str(weights)} | given, Settings).check()


class Idle:
    """An algorithm that learns nothing, and keeps which part of the run was done."""

    def __init__(self) -> None:
        self.done: list[float] = []

    def learn(self, experience: object, done: float) -> bool:
        del experience
        self.done.append(done)
        return False


class Experience(NamedTuple):
    """So many steps, and the scores of games that ended with them."""

    steps: int
    scores: NDArray[np.int64]

    @property
    def games(self) -> int:
        return self.scores.size


def experience(steps: int, scores: float | None = None) -> Played:
    return Played("actor.0", Experience(steps, np.full(0 if scores is None else 1000, scores or 0, np.int64)))


@pytest.mark.parametrize(
    ("limits", "seconds", "steps", "score", "done"),
    [
        ({"minutes": 2}, 30, 10, None, 0.25),
        ({"steps": 400}, 30, 100, None, 0.25),
        ({"target": 40}, 30, 100, 10, 0.25),
        ({"target": 40}, 30, 100, 39, 0.9),
        ({"target": 40, "steps": 100}, 30, 99, 39, 0.99),
        ({"minutes": 2, "steps": 400, "target": 40}, 60, 100, 30, 0.75),
        ({"minutes": 2, "steps": 400}, 90, 100, 30, 0.75),
        ({"minutes": 1}, 61, 100, None, 1.0),
        ({}, 1800, 100, 50, 0.5),
        ({}, 100_000, 100, 50, 0.9),
    ],
)
def test_an_algorithm_learns_which_part_of_the_run_is_done(
    training: Training,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, float],
    seconds: float,
    steps: int,
    score: int | None,
    done: float,
) -> None:
    idle = Idle()
    monkeypatch.setattr(training, "algorithm", idle)
    monkeypatch.setattr(training, "_settings", msgspec.convert(limits, Settings))
    training.learn(experience(steps, score))
    training.counts.seconds = seconds
    training.learn(experience(1))
    assert idle.done[-1] == pytest.approx(done)
    training.record.close()


def test_without_numbers_actors_share_as_many_games_as_the_network_learns_from_best() -> None:
    assert [Settings().games_of(actors) for actors in (1, 2, 4, 24, 1000)] == [1024, 512, 256, 42, 16]
    assert Settings(algo="qlearning").games_of(2) == 256
    assert Settings().steps_of_rollout == 32
    assert (Settings(network="original").games_of(9), Settings(network="original").steps_of_rollout) == (64, 16)
    assert (Settings(games=12, rollout=7).games_of(9), Settings(games=12, rollout=7).steps_of_rollout) == (12, 7)


def test_only_the_small_network_sees_paths_and_genomes_see_the_frame() -> None:
    settings = (Settings(), Settings(inputs="frame"), Settings(network="original"), Settings(algo="genetic"))
    assert [one.seen for one in settings] == ["paths", "frame", "frame", "frame"]


def evaluations(training: Training, places: range) -> None:
    genetic = training.algorithm
    assert isinstance(genetic, Genetic)
    for place in places:
        scores = np.array([place, genetic.generation], np.int64)
        training.learn(Played("actor.0", Evaluation(genetic.generation, place, scores, 10)))
        training.keep()


def test_a_genetic_run_reaches_its_target_with_a_whole_generation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSCHED_RUN_DIR", str(tmp_path))
    settings = Settings(algo="genetic", network="small", population=4, trials=2, target=5)
    training = Training(settings, tmp_path, 0)
    ends = []
    for generation, scores in enumerate([(4, 4, 4, 4), (6, 6, 6, 0), (5, 5, 5, 5)]):
        for place, score in enumerate(scores):
            training.learn(Played("actor.0", Evaluation(generation, place, np.array([score, score]), 10)))
            training.keep()
            ends.append(training.done)
    assert ends == [False] * 11 + [True], "6, 6 and 6 with a 4 of the generation before are 5.5 in the mean"
    training.record.close()


def test_a_genetic_run_goes_on_amid_a_generation_and_its_curve_has_a_line_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSCHED_RUN_DIR", str(tmp_path))
    settings = Settings(algo="genetic", network="small", population=4, trials=2)
    former = Training(settings, tmp_path, 0)
    evaluations(former, range(4))
    evaluations(former, range(3))
    former._upkeep.save()
    evaluations(former, range(3, 4))  # its line is written, and what it comes of is not saved
    assert [row[1:4] for row in read_rows(tmp_path / "scores.csv")] == [(40, 8, 0.75), (80, 16, 1.25)]

    later = Training(settings, tmp_path, 1)
    assert (later.counts.steps, later.counts.games) == (70, 14)
    evaluations(later, range(3, 4))
    assert [row[1:4] for row in read_rows(tmp_path / "scores.csv")] == [(40, 8, 0.75), (80, 16, 1.25)]
    for name, array in Weights(later.model).get().items():
        np.testing.assert_array_equal(array, Weights(former.model).get()[name])
    for one in (former, later):
        one.record.close()
