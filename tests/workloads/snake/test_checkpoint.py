"""What is saved comes back; what is not a checkpoint is refused in one sentence."""

from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest

from workloads.common.weights import Weights
from workloads.snake.a2c import ActorCritic
from workloads.snake.checkpoint import Counts, UnusableWeights, load, load_network, save
from workloads.snake.networks import build, judge
from workloads.snake.rollout import Playing
from workloads.snake.settings import Inputs, Network, Settings
from workloads.snake.vector import VectorSnake


class Taught:
    """A model and who teaches it, from games that a seed decides."""

    def __init__(self, network: Network = "small", inputs: Inputs = "frame", **given: float) -> None:
        settings = msgspec.convert({"network": network, "inputs": inputs} | given, Settings)
        self.model = build(network, inputs)
        self.model.jit_compile = False  # what is saved is the same, and XLA takes seconds
        self.random = np.random.default_rng(1)
        self.teacher = ActorCritic(self.model, settings, self.random)

    def learn(self) -> keras.Model:
        """Learn from one rollout."""
        self.teacher.learn(Playing(self.model, VectorSnake(16, 1), self.random).play(8), 0.0)
        return self.model


def fresh(network: Network = "small") -> keras.Model:
    return Taught(network).model


@pytest.fixture(scope="session")  # in random order the module's would be made for each test anew
def model() -> keras.Model:
    return Taught().learn()


def test_weights_counts_and_the_optimizer_come_back(tmp_path: Path, model: keras.Model) -> None:
    counts = Counts(network="small", steps=128, updates=1, games=3, seconds=1.5)
    save(tmp_path / "weights.npz", model, counts)
    again = fresh()
    assert load(tmp_path / "weights.npz", again) == (counts, {})
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name, array in Weights(model).get().items():
        np.testing.assert_array_equal(array, Weights(again).get()[name])


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    one, other = Taught(), Taught()
    one.learn()
    save(tmp_path / "weights.npz", one.model, Counts(network="small"))
    load(tmp_path / "weights.npz", other.model)
    rollout = Playing(one.model, VectorSnake(4, 0), np.random.default_rng(3)).play(4)
    other.random.bit_generator.state = one.random.bit_generator.state
    for taught in (one, other):
        taught.teacher.learn(rollout, 0.0)
    for name, array in Weights(one.model).get().items():
        np.testing.assert_allclose(Weights(other.model).get()[name], array, rtol=1e-4, atol=1e-6)


def test_a_network_can_be_loaded_without_knowing_its_kind(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    again, frames = load_network(tmp_path / "weights.npz")[0], VectorSnake(3, 0).frames
    again.jit_compile = False
    np.testing.assert_allclose(judge(again, frames)[0], judge(model, frames)[0])


def test_weights_of_another_network_than_the_file_says_are_unusable(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small", inputs="paths"))
    with pytest.raises(UnusableWeights, match="it holds the network 'small' with the inputs 'paths'"):
        load_network(tmp_path / "weights.npz")


def test_what_a_network_sees_is_saved_with_it(tmp_path: Path) -> None:
    model, games = Taught("small", "paths").model, VectorSnake(3, 0)
    counts = Counts(network="small", inputs="paths", steps=7)
    save(tmp_path / "weights.npz", model, counts)
    again, found = load_network(tmp_path / "weights.npz")
    again.jit_compile = False
    assert found == counts
    for hunger in (games.hunger, games.hunger + np.uint8(90)):
        np.testing.assert_allclose(judge(again, games.frames, hunger)[0], judge(model, games.frames, hunger)[0])


def test_a_file_from_before_there_were_inputs_sees_the_frame(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    with np.load(tmp_path / "weights.npz") as file:
        arrays = dict(file)
    counts = msgspec.json.decode(arrays["counts"].item())
    del counts["inputs"]
    arrays["counts"] = np.array(msgspec.json.encode(counts))
    np.savez(tmp_path / "weights.npz", **arrays)
    assert load(tmp_path / "weights.npz", fresh())[0].inputs == "frame"


def test_weights_of_other_inputs_are_refused_with_what_they_see(tmp_path: Path, model: keras.Model) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small"))
    with pytest.raises(UnusableWeights, match=r"holds the network 'small' with the inputs 'frame'"):
        load(tmp_path / "weights.npz", build("small", "paths"))


def test_saving_leaves_one_file_and_replaces_the_old_one(tmp_path: Path, model: keras.Model) -> None:
    for steps in (1, 2):
        save(tmp_path / "weights.npz", model, Counts(network="small", steps=steps))
    assert [path.name for path in tmp_path.iterdir()] == ["weights.npz"]
    assert load(tmp_path / "weights.npz", fresh())[0].steps == 2


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
    other = Taught(learning_rate=0.25).model
    load(tmp_path / "weights.npz", other)
    assert float(other.optimizer.learning_rate) == 0.25


def test_of_a_network_that_another_algorithm_trained_only_the_weights_are_taken(
    tmp_path: Path, model: keras.Model
) -> None:
    save(tmp_path / "weights.npz", model, Counts(network="small", algo="a2c", steps=9), {"more": np.arange(3)})
    other = fresh()
    _, state = load(tmp_path / "weights.npz", other, "qlearning")
    for name, array in Weights(model).get().items():
        np.testing.assert_array_equal(array, Weights(other).get()[name])
    assert int(other.optimizer.iterations) == 0 < int(model.optimizer.iterations)
    assert state["more"].tolist() == [0, 1, 2]
