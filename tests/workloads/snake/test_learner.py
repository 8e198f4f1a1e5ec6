"""How training ends when something is missing, and which options it takes."""

import sys
from pathlib import Path

import keras
import msgspec
import pytest

from workloads.snake.settings import Settings
from workloads.snake.training import Training


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("GPUSCHED_RUN_DIR", str(tmp_path))
    return Training(Settings(network="small"), tmp_path, 0)


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
        ({"algo": "qlearning", "population": 12}, "--population goes with --algo genetic, not qlearning"),
        ({"algo": "genetic", "learning_rate": 0.1}, "--learning-rate goes with --algo a2c or qlearning, not genetic"),
        ({"algo": "genetic", "weights": "weights.npz"}, "--weights goes with --algo a2c or qlearning, not genetic"),
    ],
)
def test_an_option_that_does_not_go_with_the_algorithm_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        msgspec.convert(given, Settings).check()
    msgspec.convert({"algo": given["algo"]}, Settings).check()
