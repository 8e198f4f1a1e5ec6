"""The network in NumPy is that in Keras, its sums are exact, and who plays it needs no framework."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from workloads.common.weights import Weights
from workloads.snake.genetic.performer import player_of
from workloads.snake.genetic.plain import PlainNetwork, rounded
from workloads.snake.networks import build, judge
from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, Frames
from workloads.snake.vector import VectorSnake


@pytest.fixture(scope="module")
def model() -> keras.Model:
    model = build("small")
    random = np.random.default_rng(1)
    weights = {name: array + random.normal(0, 0.1, array.shape) for name, array in Weights(model).get().items()}
    Weights(model).set({name: rounded(array.astype(np.float32)) for name, array in weights.items()})
    return model


def frames() -> Frames:
    """Boards of many games, and one that a snake fills but for one cell."""
    games, random = VectorSnake(300, 4), np.random.default_rng(2)
    for _ in range(15):
        games.step(random.integers(len(MOVES), size=300))
    full = np.arange(1, CELLS + 1, dtype=np.uint8).reshape(1, SIDE, SIDE)
    full[0, 9, 9], full[0, 0, 0] = HEAD, FRUIT
    return np.concatenate([games.frames, full])


def test_it_judges_as_the_network_in_keras_but_for_rounding(model: keras.Model) -> None:
    boards = frames()
    np.testing.assert_allclose(
        PlainNetwork(Weights(model).get()).logits(boards), judge(model, boards)[0], atol=0.01, rtol=0.001
    )


def test_in_whatever_order_it_adds_up_it_finds_the_same_to_the_last_bit() -> None:
    largest = {"dense_1": (363, 128), "dense_2": (128, 128), "policy": (128, 4)}
    random, boards = np.random.default_rng(3), frames()
    weights = {
        f"{name}/kernel": rounded(random.normal(0, 6, shape).astype(np.float32)) for name, shape in largest.items()
    }
    weights |= {
        f"{name}/bias": rounded(random.normal(0, 6, shape[1]).astype(np.float32)) for name, shape in largest.items()
    }
    order = random.permutation(128), random.permutation(128)
    other = {
        "dense_1/kernel": weights["dense_1/kernel"][:, order[0]],
        "dense_1/bias": weights["dense_1/bias"][order[0]],
        "dense_2/kernel": weights["dense_2/kernel"][order[0]][:, order[1]],
        "dense_2/bias": weights["dense_2/bias"][order[1]],
        "policy/kernel": weights["policy/kernel"][order[1]],
        "policy/bias": weights["policy/bias"],
    }
    np.testing.assert_array_equal(PlainNetwork(weights).logits(boards), PlainNetwork(other).logits(boards))


def test_rounded_weights_stay_and_large_ones_have_an_end() -> None:
    numbers = np.array([0.1, -0.3, 100, -100, 3.00012], np.float32)
    once = rounded(numbers)
    np.testing.assert_array_equal(once, rounded(once))
    np.testing.assert_allclose(once, [0.1, -0.3, 8, -8, 3], atol=2**-13)
    assert once.dtype == np.float32


def test_who_plays_genomes_of_the_small_network_imports_no_framework() -> None:
    code = """
import sys
import numpy as np
import workloads.snake.actor
from workloads.snake.genetic.performer import player_of
from workloads.snake.vector import VectorSnake

games = VectorSnake(3, 1)
moves = player_of("small")(np.array([1, 2]))(games.frames, games.hunger)
print(moves.shape, {"keras", "tensorflow"} & set(sys.modules))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["(3,)", "set()"]


def test_genomes_of_the_original_network_are_played_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.setenv(name, "1")  # so that it is as before afterwards
    player, boards = player_of("original"), frames()
    hunger = np.zeros(len(boards), np.uint8)
    one, other = (player(np.array(chain))(boards, hunger).copy() for chain in ([1, 2], [1, 3]))
    assert set(np.concatenate([one, other]).tolist()) <= set(range(len(MOVES)))
    assert (one != other).any()
