"""What is saved comes back; what is not a checkpoint is refused in one sentence."""

from pathlib import Path

import keras
import numpy as np
import pytest

from workloads.snake.a2c import prepare, update
from workloads.snake.checkpoint import Counts, UnusableWeights, load, load_network, load_state, save
from workloads.snake.networks import build, judge, named_weights
from workloads.snake.rollout import Playing
from workloads.snake.settings import Network, Settings
from workloads.snake.vector import VectorSnake


def fresh(network: Network = "small") -> keras.Model:
    model = build(network)
    prepare(model, Settings())
    return model


def learnt(seed: int, model: keras.Model) -> keras.Model:
    random = np.random.default_rng(seed)
    update(model, Playing(model, VectorSnake(16, seed), random).play(8), 0.9, random)
    return model


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return learnt(1, fresh())


def test_weights_counts_and_the_optimizer_come_back(tmp_path: Path, model: keras.Model) -> None:
    counts = Counts(network="small", steps=128, updates=1, games=3, seconds=1.5)
    save(tmp_path / "weights.npz", model, counts)
    again = fresh()
    assert load(tmp_path / "weights.npz", again) == counts
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name, array in named_weights(model).items():
        np.testing.assert_array_equal(array, named_weights(again)[name])


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    one, other = learnt(1, fresh()), fresh()
    save(tmp_path / "weights.npz", one, Counts(network="small"))
    load(tmp_path / "weights.npz", other)
    random = np.random.default_rng(3)
    rollout = Playing(one, VectorSnake(4, 0), random).play(4)
    for model in (one, other):
        update(model, rollout, 0.9, np.random.default_rng(4))
    for name, array in named_weights(one).items():
        np.testing.assert_allclose(named_weights(other)[name], array, rtol=1e-4, atol=1e-6)


def test_a_network_can_be_loaded_without_knowing_its_kind(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    frames = VectorSnake(3, 0).frames
    np.testing.assert_allclose(judge(load_network(tmp_path / "weights.npz"), frames)[0], judge(model, frames)[0])


def test_saving_leaves_one_file_and_replaces_the_old_one(tmp_path: Path, model: keras.Model) -> None:
    for steps in (1, 2):
        save(tmp_path / "weights.npz", model, Counts(network="small", steps=steps))
    assert [path.name for path in tmp_path.iterdir()] == ["weights.npz"]
    assert load(tmp_path / "weights.npz", fresh()).steps == 2


def test_what_is_no_checkpoint_is_refused(tmp_path: Path, model: keras.Model) -> None:
    whole = tmp_path / "whole.npz"
    save(whole, model, Counts(network="small"))
    cut, text, other = tmp_path / "cut.npz", tmp_path / "text.npz", tmp_path / "other.npz"
    cut.write_bytes(whole.read_bytes()[:5000])
    text.write_text("weights")
    np.savez(other, numbers=np.arange(3))
    for path in (cut, text, other):
        with pytest.raises(UnusableWeights, match=f"{path.name} holds no weights"):
            load(path, model)
    with pytest.raises(UnusableWeights, match="No such file"):
        load(tmp_path / "missing.npz", model)


def test_a_checkpoint_of_the_other_network_is_refused(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    with pytest.raises(UnusableWeights, match=r"not of the network 'original'.*holds the network 'small'"):
        load(tmp_path / "weights.npz", fresh("original"))


def test_another_learning_rate_is_heeded_with_weights_from_a_file(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    other = build("small")
    prepare(other, Settings(learning_rate=0.25))
    load(tmp_path / "weights.npz", other)
    assert float(other.optimizer.learning_rate) == 0.25


def test_of_a_network_that_another_algorithm_trained_only_the_weights_are_taken(
    tmp_path: Path, model: keras.Model
) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small", algo="a2c", steps=9), {"more": np.arange(3)})
    other = fresh()
    load(tmp_path / "weights.npz", other, "qlearning")
    for name, array in named_weights(model).items():
        np.testing.assert_array_equal(array, named_weights(other)[name])
    assert int(other.optimizer.iterations) == 0 < int(model.optimizer.iterations)
    assert load_state(tmp_path / "weights.npz")["more"].tolist() == [0, 1, 2]
