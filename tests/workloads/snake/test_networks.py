"""Both networks: their sizes, what they see, and their weights by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from workloads.snake import networks
from workloads.snake.a2c import prepare
from workloads.snake.networks import OnePlane, SeenFromHead, build, judge, named_weights, take_weights
from workloads.snake.rules import FRUIT, HEAD, SIDE, Frames
from workloads.snake.settings import Network, Settings
from workloads.snake.vector import VectorSnake

NETWORKS: list[Network] = ["original", "small"]


def without_value_head(model: keras.Model) -> int:
    return sum(array.size for name, array in named_weights(model).items() if not name.startswith("value/"))


def board(head: tuple[int, int], fruit: tuple[int, int], tail: dict[tuple[int, int], int]) -> Frames:
    frame = np.zeros((1, SIDE, SIDE), np.uint8)
    frame[0][head], frame[0][fruit] = HEAD, FRUIT
    for cell, life in tail.items():
        frame[0][cell] = life
    return frame


def test_the_original_has_the_original_number_of_weights() -> None:
    assert without_value_head(build("original")) == 1_182_904


def test_the_small_network_is_a_twentieth_of_it() -> None:
    assert without_value_head(build("small")) < 1_182_904 / 15


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


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("gpu", "rounds"), [(True, False), (False, True), (False, False)])
def test_files_of_weights_are_the_same_on_every_machine(
    network: Network, gpu: bool, rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "_has_gpu", lambda: gpu)
    monkeypatch.setattr(networks, "_multiplies_bfloat16", lambda: rounds)
    weights = named_weights(build(network))
    assert {name: array.shape for name, array in weights.items()} == SAVED[network] | HEADS
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_a_framework_that_lists_no_gpus_has_none(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def list_devices(kind: str) -> list[str]:
        raise error(kind)

    monkeypatch.setattr(keras.distribution, "list_devices", list_devices)
    assert build("original").count_params() == 1_182_904 + 201


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_gives_four_logits_and_a_value_for_each_frame(network: Network) -> None:
    model = build(network)
    for games in (1, 5):
        logits, values = judge(model, VectorSnake(games, 0).frames)
        assert (logits.shape, values.shape) == ((games, 4), (games,))
        assert np.isfinite(logits).all()


def test_the_original_tells_head_fruit_tail_and_free_cells_apart() -> None:
    plane = np.asarray(OnePlane()(board((2, 3), (7, 7), {(2, 2): 2, (2, 1): 1})))[0, :, :, 0]
    assert (plane[2, 3], plane[7, 7], plane[0, 0]) == (3, -3, 0)
    assert 0 < plane[2, 1] < plane[2, 2] < 3


def test_the_small_network_sees_everything_from_the_head() -> None:
    seen = np.asarray(SeenFromHead()(board((9, 4), (9, 6), {(9, 3): 2, (8, 3): 1}))).reshape(11, 11, 3)
    fruit, wall, tail = (seen[:, :, plane] for plane in range(3))
    middle = 5
    assert np.argwhere(fruit).tolist() == [[middle, middle + 2]]
    assert np.argwhere(tail).tolist() == [[middle - 1, middle - 1], [middle, middle - 1]]
    assert tail[middle, middle - 1] > tail[middle - 1, middle - 1] > 0
    assert wall[middle + 1].all(), "the wall is right below a head in the last row"
    assert wall.sum() == 11 + 11 - 1


def test_the_view_holds_every_cell_once_wherever_the_head_is() -> None:
    decode = SeenFromHead()
    for at in range(SIDE * SIDE):
        frame = np.arange(1, SIDE * SIDE + 1, dtype=np.uint8).reshape(1, SIDE, SIDE)
        frame[0, at // SIDE, at % SIDE] = HEAD
        seen = np.asarray(decode(frame)).reshape(-1, 3)
        assert np.unique(seen[:, 2]).size == SIDE * SIDE
        assert not seen[60].any(), "the head itself needs no mark: it is always in the middle"


def test_the_original_plays_as_keras_own_convolutions_would() -> None:
    model = build("original")
    convolution = keras.layers.Conv2D(200, 3, activation="relu", name="convolution_2")
    plain = keras.models.clone_model(
        model,
        clone_function=lambda layer: (
            convolution if layer.name == convolution.name else type(layer).from_config(layer.get_config())
        ),
    )
    take_weights(plain, named_weights(model))
    frames = VectorSnake(40, 0).frames
    for ours, theirs in zip(judge(model, frames), judge(plain, frames), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02 * theirs.std())


def test_bfloat16_plays_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    for there in (True, False):
        monkeypatch.setattr(networks, "_multiplies_bfloat16", lambda there=there: there)
        models.append(build("original"))
    take_weights(models[1], named_weights(models[0]))
    rounded, exact = (judge(model, VectorSnake(40, 0).frames)[0] for model in models)
    assert rounded.dtype == exact.dtype == np.float32
    assert 0 < np.abs(rounded - exact).max() < 0.1 * exact.std()


@pytest.mark.parametrize(("flags", "there"), [("fma avx512_bf16 gfni", True), ("amx_bf16", True), ("avx512f", False)])
def test_bfloat16_is_used_where_the_cpu_has_it(flags: str, there: bool, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert networks._multiplies_bfloat16(tmp_path / "cpuinfo") is there
    assert not networks._multiplies_bfloat16(tmp_path / "none")


@pytest.mark.parametrize("network", NETWORKS)
def test_many_numbers_of_frames_are_compiled_for_once(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counting(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def counted(layer: Any, frames: Any) -> Any:
            compiled.append(layer.name)
            return call(layer, frames)

        return counted

    for layer in (OnePlane, SeenFromHead):
        monkeypatch.setattr(layer, "call", counting(layer.call))
    model = build(network)
    prepare(model, Settings())
    frames = VectorSnake(30, 0).frames
    logits, _ = judge(model, frames)
    judge(model, frames[:7])
    compiled.clear()
    for games in (1, 2, 3, 8, 11, 29):
        np.testing.assert_allclose(judge(model, frames[:games])[0], logits[:games], atol=0.02 * logits.std())
    assert not compiled


@pytest.mark.parametrize(("backend", "compiled"), [("tensorflow", False), ("jax", True), ("torch", False)])
def test_only_jax_needs_xla(backend: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    model = build("small")
    assert model.jit_compile is compiled
    prepare(model, Settings())
    assert model.jit_compile is compiled


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_go_from_one_network_into_another_of_its_kind(network: Network) -> None:
    one, other = build(network), build(network)
    take_weights(other, named_weights(one))
    frames = VectorSnake(3, 0).frames
    np.testing.assert_allclose(judge(one, frames)[0], judge(other, frames)[0], rtol=1e-5)


def test_named_weights_are_copies() -> None:
    model = build("small")
    before = named_weights(model)
    kept = {name: array.copy() for name, array in before.items()}
    take_weights(model, {name: array + 1 for name, array in before.items()})
    for name, array in before.items():
        np.testing.assert_array_equal(array, kept[name])


def test_weights_of_another_network_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'small'"):
        take_weights(build("small"), named_weights(build("original")))


def test_a_model_can_be_saved_whole_and_loaded(tmp_path: pytest.TempPathFactory) -> None:
    model = build("small")
    model.save(f"{tmp_path}/model.keras")
    again = keras.saving.load_model(f"{tmp_path}/model.keras")
    frames = VectorSnake(3, 0).frames
    np.testing.assert_allclose(judge(model, frames)[0], judge(again, frames)[0], rtol=1e-5)
