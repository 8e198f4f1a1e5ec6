"""The networks: their sizes, when they are compiled, and their weights by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from workloads.common.weights import Weights
from workloads.snake import networks
from workloads.snake.a2c import ActorCritic
from workloads.snake.inputs import OnePlane, Paths, SeenFromHead
from workloads.snake.networks import build, judge, judge_any_number
from workloads.snake.settings import Inputs, Network, Settings
from workloads.snake.vector import VectorSnake

NETWORKS: list[tuple[Network, Inputs]] = [("original", "frame"), ("small", "frame"), ("small", "paths")]
each_network = pytest.mark.parametrize(("network", "inputs"), NETWORKS)


def uncompiled(network: Network, inputs: Inputs) -> keras.Model:
    """A network that XLA does not compile: with paths that takes seconds for each number of frames."""
    model = build(network, inputs)
    model.jit_compile = False
    return model


def without_value_head(model: keras.Model) -> int:
    return sum(array.size for name, array in Weights(model).get().items() if not name.startswith("value/"))


def test_the_original_has_the_original_number_of_weights() -> None:
    assert without_value_head(build("original")) == 1_182_904


def test_the_small_network_is_a_twentieth_of_it() -> None:
    assert without_value_head(build("small", "paths")) < without_value_head(build("small", "frame")) < 1_182_904 / 15


HEADS = {"policy/bias": (4,), "value/bias": (1,)}
SAVED: dict[Network, dict[str, tuple[int, ...]]] = {
    "original": {
        "convolution_1/kernel": (4, 4, 1, 100),
        "convolution_1/bias": (100,),
        "convolution_2/kernel": (3, 3, 100, 200),
        "convolution_2/bias": (200,),
        "dense/kernel": (5000, 200),
        "dense/bias": (200,),
        "policy/kernel": (200, 4),
        "value/kernel": (200, 1),
    },
    "small": {
        "dense_1/kernel": (363, 128),
        "dense_1/bias": (128,),
        "dense_2/kernel": (128, 128),
        "dense_2/bias": (128,),
        "policy/kernel": (128, 4),
        "value/kernel": (128, 1),
    },
}


@each_network
@pytest.mark.parametrize("gpu", [True, False])
def test_files_of_weights_are_the_same_on_every_machine(
    network: Network, inputs: Inputs, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "_has_gpu", lambda: gpu)
    weights = Weights(build(network, inputs)).get()
    seen = {"dense_1/kernel": (284, 128)} if inputs == "paths" else {}
    assert {name: array.shape for name, array in weights.items()} == SAVED[network] | HEADS | seen
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_a_framework_that_lists_no_gpus_has_none(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def list_devices(kind: str) -> list[str]:
        raise error(kind)

    monkeypatch.setattr(keras.distribution, "list_devices", list_devices)
    assert build("original").count_params() == 1_182_904 + 201


@each_network
def test_a_network_gives_four_logits_and_a_value_for_each_frame(network: Network, inputs: Inputs) -> None:
    model = uncompiled(network, inputs)
    for games in (1, 5):
        snakes = VectorSnake(games, 0)
        logits, values, _ = judge(model, snakes.frames, snakes.hunger)
        assert (logits.shape, values.shape) == ((games, 4), (games,))
        assert np.isfinite(logits).all()


def test_the_original_plays_as_keras_own_convolutions_would() -> None:
    model = build("original")
    convolution = keras.layers.Conv2D(200, 3, activation="relu", name="convolution_2")
    plain = keras.models.clone_model(
        model,
        clone_function=lambda layer: (
            convolution if layer.name == convolution.name else type(layer).from_config(layer.get_config())
        ),
    )
    Weights(plain).set(Weights(model).get())
    frames = VectorSnake(40, 0).frames
    for ours, theirs in zip(judge(model, frames)[:2], judge(plain, frames)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02 * theirs.std())


@each_network
def test_each_number_of_frames_is_compiled_once_and_any_number_for_powers_of_two(
    network: Network, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(layer: Any, observed: Any) -> Any:
            compiled.append(observed.shape[0])
            return call(layer, observed)

        return counted

    for layer in (OnePlane, SeenFromHead, Paths):
        monkeypatch.setattr(layer, "call", counting(layer.call))
    model, games = uncompiled(network, inputs), VectorSnake(8, 0)
    compiled.clear()
    logits, values, observations = judge(model, games.frames, games.hunger)
    for count in (5, 6, 7, 8, 3, 4):
        found = judge_any_number(model, games.frames[:count], games.hunger[:count])
        np.testing.assert_allclose(found[0], logits[:count], atol=0.02 * logits.std())
        np.testing.assert_allclose(found[1], values[:count], atol=0.02 * values.std())
        np.testing.assert_array_equal(found[2], observations[:count])
    assert sorted(compiled) == [4, 8]


@pytest.mark.parametrize(
    ("backend", "network", "compiled"),
    [
        ("tensorflow", "original", False),
        ("tensorflow", "small", True),
        ("jax", "original", True),
        ("jax", "small", True),
        ("torch", "original", False),
        ("torch", "small", False),
    ],
)
def test_xla_compiles_the_small_network_and_what_jax_runs(
    backend: str, network: Network, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(keras.backend, "backend", lambda: backend)
        model = build(network)
    assert model.jit_compile is compiled
    ActorCritic(model, Settings(network=network), np.random.default_rng(0))
    assert model.jit_compile is compiled, "who teaches it leaves that as it is"


@each_network
def test_weights_go_from_one_network_into_another_of_its_kind(network: Network, inputs: Inputs) -> None:
    one, other = uncompiled(network, inputs), uncompiled(network, inputs)
    games = VectorSnake(3, 0)
    before, wanted = (judge(model, games.frames, games.hunger)[0] for model in (other, one))
    Weights(other).set(Weights(one).get())
    found = judge(other, games.frames, games.hunger)[0]
    assert np.abs(found - before).max() > 1e-3
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_named_weights_are_copies() -> None:
    model = build("small")
    before = Weights(model).get()
    kept = {name: array.copy() for name, array in before.items()}
    Weights(model).set({name: array + 1 for name, array in before.items()})
    for name, array in before.items():
        np.testing.assert_array_equal(array, kept[name])


def test_weights_of_another_network_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'small'"):
        Weights(build("small")).set(Weights(build("original")).get())


@each_network
def test_a_model_can_be_saved_whole_and_loaded(tmp_path: Path, network: Network, inputs: Inputs) -> None:
    model, games = uncompiled(network, inputs), VectorSnake(3, 0)
    expected = judge(model, games.frames, games.hunger)[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again.jit_compile = False
    np.testing.assert_allclose(judge(again, games.frames, games.hunger)[0], expected, rtol=1e-5, atol=1e-6)
