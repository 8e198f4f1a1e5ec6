"""All ways of playing one game compute the same network: else their speed would say nothing."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bench.fresh import ROOT
from bench.peers.play_one import FORWARDS, keras_model, weights
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("way", FORWARDS)
def test_each_way_gives_the_logits_of_the_same_network(way: str) -> None:
    frames = np.random.default_rng(0).random((1, 10, 10, 1), np.float32)
    arrays = weights()
    try:
        logits = FORWARDS[way](arrays)(frames)
    except ImportError as error:
        pytest.skip(str(error))
    expected = keras_model(arrays)(frames).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_row_that_fails_is_told_and_the_next_one_is_played() -> None:
    argv = [sys.executable, "-m", "bench.peers.play", "1"]
    rows = "no-such-row 0.01\nnumpy 0.01\n"
    told = subprocess.run(
        argv, input=rows, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout
    failed, played = [json.loads(line) for line in told.splitlines()]
    assert set(failed) == {"failed"}
    assert played["steps"] > 0
