"""Greedy play: whole games, the same for the same seed."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from workloads.snake.checkpoint import Counts
from workloads.snake.evaluate import describe, evaluate, full_interval, greedy_games
from workloads.snake.networks import build
from workloads.snake.rules import FRUIT, HEAD


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    return build("small", "paths")


def test_each_game_is_played_once_to_its_end(model: keras.Model) -> None:
    scores, _ = greedy_games(model, 40, seed=1)
    assert scores.shape == (40,)
    assert (scores >= 0).all()
    np.testing.assert_array_equal(scores, greedy_games(model, 40, seed=1)[0])


def test_the_game_that_is_shown_has_the_median_score_and_is_whole(model: keras.Model) -> None:
    scores, frames = greedy_games(model, 41, seed=1)
    assert len(set(scores)) > 1
    fruits = max(int(((frame > 0) & (frame <= HEAD)).sum()) - 3 for frame in frames)
    assert fruits == np.median(scores)
    assert 1 <= len(frames) <= 100 * 97
    assert all((frame == HEAD).sum() == (frame == FRUIT).sum() == 1 for frame in frames)
    assert sorted(frames[0][frames[0] > 0]) == [1, 2, HEAD, FRUIT]


def test_the_description_has_mean_and_spread() -> None:
    text = describe(np.array([0, 2, 4]))
    assert "mean 2.00 of 97 fruits (0.2 to 3.8) over 3 games" in text
    assert "deviation 1.63" in text
    assert "most 4" in text


def test_full_boards_are_a_share_with_its_interval() -> None:
    text = describe(np.array([97] * 8 + [40, 50]))
    assert "80.0% full boards (49.0% to 94.3%)" in text  # Wilson 1927, as tables have it for 8 of 10
    assert full_interval(0, 10)[0] == 0.0


def test_what_greedy_play_gave_is_left_and_said(tmp_path: Path, model: keras.Model) -> None:
    told = evaluate(model, Counts(network="small", inputs="paths", steps=7, seconds=2.5), tmp_path)

    left = json.loads((tmp_path / "evaluation.json").read_text())
    assert (left["games"], left["steps"], left["seconds"]) == (256, 7, 2.5)
    assert (len(left["results"]), left["mean"]) == (256, np.mean(left["results"]))
    assert (left["network"], left["inputs"]) == ("small", "paths")
    assert left["full"] == left["results"].count(97) / 256
    assert left["full_interval"][0] <= left["full"] <= left["full_interval"][1]
    assert told.startswith(f"greedy play: mean {left['mean']:.2f} of 97 fruits")
    assert told.endswith("network small, inputs paths")
    assert (tmp_path / "game.gif").read_bytes()[:6] == b"GIF89a"
