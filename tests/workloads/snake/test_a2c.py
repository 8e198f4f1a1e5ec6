"""Advantages against a plain reference; the loss by hand; an update that learns."""

from typing import Any

import keras
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from workloads.common.weights import Weights
from workloads.snake import a2c
from workloads.snake.a2c import ActorCritic, advantages, policy_loss
from workloads.snake.algorithm import reward_scale
from workloads.snake.exploring import Exploring
from workloads.snake.networks import build, judge, layout_of, reader
from workloads.snake.rollout import Floats, Playing, rollout_from, sample
from workloads.snake.rules import Frames
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, Layout, turned_each
from workloads.snake.vector import VectorSnake


def plain_advantages(
    rewards: list[float], ended: list[bool], values: list[float], discount: float, trace: float
) -> list[float]:
    """The sum over all later steps of the same game, term by term."""
    result = []
    for start in range(len(rewards)):
        total, weight = 0.0, 1.0
        for step in range(start, len(rewards)):
            following = 0.0 if ended[step] else values[step + 1]
            total += weight * (rewards[step] + discount * following - values[step])
            if ended[step]:
                break
            weight *= discount * trace
        result.append(total)
    return result


@given(seed=st.integers(0, 10_000), steps=st.integers(1, 12), games=st.integers(1, 4))
def test_advantages_are_the_sums_of_later_surprises(seed: int, steps: int, games: int) -> None:
    random = np.random.default_rng(seed)
    rewards = random.integers(0, 2, (steps, games)).astype(np.float32)
    ended = random.random((steps, games)) < 0.3
    values = random.normal(size=(steps + 1, games)).astype(np.float32)
    result = advantages(rewards, ended, values, 0.9, 0.8)
    for game in range(games):
        expected = plain_advantages(
            rewards[:, game].tolist(), ended[:, game].tolist(), values[:, game].tolist(), 0.9, 0.8
        )
        np.testing.assert_allclose(result[:, game], expected, rtol=1e-4, atol=1e-5)


def loss_of(logits: list[float], action: int, advantage: float, then: float, entropy: float = 0.0) -> float:
    scores, worth, log = (np.array([numbers], np.float32) for numbers in (logits, advantage, then))
    return float(policy_loss(scores, np.array([action]), worth, log, entropy)[0])


def test_on_a_fresh_batch_the_loss_is_less_the_advantage() -> None:
    quarter = float(np.log(0.25))
    assert loss_of([0, 0, 0, 0], 2, 1.5, quarter) == pytest.approx(-1.5, rel=1e-5)


def test_the_gain_of_a_stale_step_is_clipped_and_its_harm_is_not() -> None:
    eighth = float(np.log(0.125))
    assert loss_of([0, 0, 0, 0], 0, 1.0, eighth) == pytest.approx(-1.2, rel=1e-5)
    assert loss_of([0, 0, 0, 0], 0, -1.0, eighth) == pytest.approx(2.0, rel=1e-5)


def test_entropy_lowers_the_loss() -> None:
    assert loss_of([0, 0, 0, 0], 0, 0.0, 0.0, entropy=0.5) == pytest.approx(-0.5 * np.log(4), rel=1e-5)


def test_actions_are_drawn_as_the_softmax_says() -> None:
    logits: Floats = np.tile(np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32)), (40_000, 1))
    actions, logs = sample(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(actions) / actions.size, [0.1, 0.2, 0.3, 0.4], atol=0.01)
    np.testing.assert_allclose(logs, logits[0][actions], rtol=1e-5)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    return build("small", "paths")


def test_a_rollout_is_what_was_played(model: keras.Model) -> None:
    rollout = Playing(model, VectorSnake(30, 1), np.random.default_rng(1)).play(20)
    assert rollout.steps == 600
    again = VectorSnake(30, 1)
    for step in range(20):
        observed = judge(model, again.frames, again.hunger).observations
        np.testing.assert_array_equal(rollout.observations[step], observed)
        _, rewards, ended, _ = again.step(rollout.actions[step])
        np.testing.assert_array_equal(rollout.rewards[step], rewards)
        np.testing.assert_array_equal(rollout.ended[step], ended)
    assert rollout.scores.size == rollout.ended.sum()
    np.testing.assert_allclose(rollout.values[20], judge(model, again.frames, again.hunger).values, rtol=1e-5)


@pytest.mark.parametrize("kind", [Playing, Exploring])
def test_who_watches_sees_the_first_game_step_by_step(
    model: keras.Model, kind: type[Playing] | type[Exploring]
) -> None:
    seen: list[tuple[Frames, NDArray[np.bool_]]] = []
    played = kind(model, VectorSnake(5, 1), np.random.default_rng(1)).play(
        40, lambda frames, ended: seen.append((frames.copy(), ended.copy()))
    )
    again = VectorSnake(5, 1)
    frames, ended = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    assert len(frames) == len(ended) == 40
    for step in range(40):
        np.testing.assert_array_equal(frames[step], again.frames[0])
        assert ended[step] == again.step(played.actions[step])[2][0]
    assert ended.any()


def test_a_rollout_goes_on_where_the_one_before_it_ended(model: keras.Model) -> None:
    playing = Playing(model, VectorSnake(30, 1), np.random.default_rng(1))
    one, other = playing.play(5), playing.play(5)
    whole = Playing(model, VectorSnake(30, 1), np.random.default_rng(1)).play(10)
    np.testing.assert_array_equal(np.concatenate([one.observations, other.observations]), whole.observations)
    np.testing.assert_array_equal(np.concatenate([one.actions, other.actions]), whole.actions)
    np.testing.assert_allclose(np.concatenate([one.values[:-1], other.values]), whole.values, rtol=1e-5)


def test_a_log_probability_is_of_the_policy_that_played_also_when_weights_change() -> None:
    changing = build("small", "paths")
    playing = Playing(changing, VectorSnake(30, 1), np.random.default_rng(1))
    playing.play(3)
    Weights(changing).set({name: array * 2 for name, array in Weights(changing).get().items()})
    before = [array / 2 for array in changing.get_weights()]
    rollout = playing.play(3)
    after = changing.get_weights()
    for step, weights in enumerate([before, after, after]):
        changing.set_weights(weights)
        logits, values = (np.asarray(array) for array in reader(changing)(rollout.observations[step]))
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(
            rollout.log_probabilities[step], logs[np.arange(30), rollout.actions[step]], atol=1e-4
        )
        np.testing.assert_allclose(rollout.values[step], values[:, 0], atol=1e-4)


def test_a_rollout_travels_as_named_arrays(model: keras.Model) -> None:
    rollout = Playing(model, VectorSnake(3, 1), np.random.default_rng(1)).play(4)
    again = rollout_from(rollout.arrays(), 127)
    for name, array in again.arrays().items():
        np.testing.assert_array_equal(array, getattr(rollout, name))


def test_arrays_that_are_no_rollout_are_refused(model: keras.Model) -> None:
    arrays = Playing(model, VectorSnake(3, 1), np.random.default_rng(1)).play(4).arrays()
    with pytest.raises(ValueError, match="values"):
        rollout_from({name: array for name, array in arrays.items() if name != "values"}, 127)
    with pytest.raises(ValueError, match="observations"):
        rollout_from(arrays, 121)
    for name in arrays:
        with pytest.raises(ValueError, match=name):
            rollout_from(arrays | {name: arrays[name].astype(np.float64)}, 127)
    with pytest.raises(ValueError, match="values"):
        rollout_from(arrays | {"values": arrays["values"][1:]}, 127)
    with pytest.raises(ValueError, match="actions"):
        rollout_from(arrays | {"actions": arrays["actions"][0]}, 127)
    with pytest.raises(ValueError, match="actions"):
        rollout_from({name: array if name == "scores" else array[0] for name, array in arrays.items()}, 127)


class Recorded:
    """Takes the place of the steps on the minibatches, and keeps what they were to be made on."""

    def __init__(self, teacher: ActorCritic, monkeypatch: pytest.MonkeyPatch) -> None:
        self.minibatches: list[dict[str, NDArray[Any]]] = []
        monkeypatch.setattr(teacher, "_steps", self.minibatches.append)


def test_each_step_is_learnt_from_once_and_turned_by_itself(
    model: keras.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Playing(model, VectorSnake(64, 1), np.random.default_rng(1)).play(32)
    numbers = np.arange(played.steps, dtype=np.float32)  # by which a step is known again
    rollout = msgspec.structs.replace(played, log_probabilities=numbers.reshape(32, 64))
    drawn: list[NDArray[np.int64]] = []

    def turning(observations: Any, actions: Any, symmetries: NDArray[np.int64], layout: Layout) -> Any:
        drawn.append(symmetries)
        return turned_each(observations, actions, symmetries, layout)

    monkeypatch.setattr(a2c, "turned_each", turning)
    teacher = ActorCritic(model, Settings(), np.random.default_rng(2))
    recorded = Recorded(teacher, monkeypatch)
    assert not teacher.learn(rollout, 0.0)
    (minibatches,) = recorded.minibatches
    assert minibatches["observations"].shape == (2, 1024, 127)
    order = minibatches["then"].ravel().astype(np.int64)
    assert sorted(order) == list(range(rollout.steps)) != order.tolist()
    surprise = advantages(rollout.rewards * reward_scale(0.995), rollout.ended, rollout.values, 0.995)
    (symmetries,) = drawn
    assert all(set(part) == set(range(SYMMETRIES)) for part in symmetries[order].reshape(2, 1024).tolist())
    flat = rollout.observations.reshape(2048, 127)
    observations, actions = turned_each(flat, rollout.actions.ravel(), symmetries, layout_of(model))
    expected = {
        "observations": observations,
        "actions": actions,
        "worth": (surprise + rollout.values[:-1]).ravel(),
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(minibatches[name].reshape(array.shape), array[order])


@pytest.mark.parametrize(
    ("done", "rate", "entropy"),
    [(0.0, 0.002, 0.01), (0.5, 0.002, 0.01), (0.75, 0.001, 0.00525), (0.9, 0.0004, 0.0024), (1.0, 0.0, 0.0005)],
)
def test_rate_and_entropy_fall_in_the_second_half_of_a_run(
    model: keras.Model, monkeypatch: pytest.MonkeyPatch, done: float, rate: float, entropy: float
) -> None:
    rollout = Playing(model, VectorSnake(4, 1), np.random.default_rng(1)).play(4)
    teacher = ActorCritic(model, Settings(learning_rate=0.002, entropy=0.01), np.random.default_rng(2))
    recorded = Recorded(teacher, monkeypatch)
    teacher.learn(rollout, done)
    assert float(model.optimizer.learning_rate) == pytest.approx(rate)
    assert recorded.minibatches[0]["entropy"].tolist() == pytest.approx([entropy])


def test_values_are_as_large_with_any_discount() -> None:
    """A fruit every k steps for ever is worth a k-th of 1 / (1 - discount)."""
    for discount in (0.0, 0.9, 0.97, 0.995, 0.999):
        assert reward_scale(discount) / (1 - discount) == pytest.approx(1 / 0.03)
    assert reward_scale(1.0) > 0


@pytest.mark.timeout(1200)  # half a minute alone, more on a busy machine
def test_updates_make_what_paid_more_probable(model: keras.Model) -> None:
    random = np.random.default_rng(2)
    teacher = ActorCritic(model, Settings(learning_rate=0.003, discount=0.0), random)
    playing = Playing(model, VectorSnake(64, 2), random)
    deaths = []
    for _ in range(40):
        rollout = playing.play(32)
        deaths.append(rollout.ended.mean())
        paid = (1.0 - rollout.ended.astype(np.float32)) / reward_scale(0.0)
        teacher.learn(msgspec.structs.replace(rollout, rewards=paid), 0.0)
    assert np.mean(deaths[-5:]) < np.mean(deaths[:5]) / 2
