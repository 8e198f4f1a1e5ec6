"""How training ends when something is missing, and which options it takes."""

import sys
from pathlib import Path

import keras
import msgspec
import pytest

from workloads.snake.training import Training
from workloads.snake.settings import Settings


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
