"""What a move is worth, what is remembered, and that a network learns from it."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from workloads.common.compiled import compiled_call
from workloads.snake.exploring import Explored, Exploring, explored_from
from workloads.snake.networks import build, judge, layout_of, reader
from workloads.snake.qlearning import QLearning, q_loss, targets
from workloads.snake.replay import Replay, Transitions, transitions
from workloads.snake.settings import Settings
from workloads.snake.symmetry import SYMMETRIES, turned
from workloads.snake.vector import VectorSnake

SIZE = 3


def explored(steps: int, games: int, seed: int = 0) -> Explored:
    """Observations that show when they are: step * 10 + game."""
    random = np.random.default_rng(seed)
    when = np.arange(steps + 1)[:, None] * 10 + np.arange(games)
    return Explored(
        observations=np.repeat(when[:, :, None], SIZE, axis=2).astype(np.uint8),
        actions=random.integers(4, size=(steps, games)).astype(np.uint8),
        rewards=random.integers(0, 2, (steps, games)).astype(np.float32),
        ended=random.random((steps, games)) < 0.3,
        scores=np.empty(0, np.int64),
    )


@given(seed=st.integers(0, 10_000), steps=st.integers(1, 9), games=st.integers(1, 3), ahead=st.integers(1, 4))
def test_a_transition_is_the_sum_of_the_moves_up_to_where_it_leads(
    seed: int, steps: int, games: int, ahead: int
) -> None:
    played = explored(steps, games, seed)
    found = transitions(played, 0.5, ahead)
    for number in range(steps * games):
        step, game = divmod(number, games)
        total, worth, at = 0.0, 1.0, step
        while at < min(step + ahead, steps) and worth:
            total += worth * float(played.rewards[at, game])
            worth *= 0.0 if played.ended[at, game] else 0.5
            at += 1
        assert found.observations[number].tolist() == [step * 10 + game] * SIZE
        assert found.actions[number] == played.actions[step, game]
        assert found.returns[number] == pytest.approx(total)
        assert found.worth[number] == pytest.approx(worth)
        if worth:
            assert found.later[number].tolist() == [at * 10 + game] * SIZE


def test_the_one_that_finds_a_move_best_does_not_say_how_good_it_is() -> None:
    batch = transitions(explored(3, 1), 0.9, 1)
    online = np.array([[0, 5, 1, 1]] * 3, np.float32)
    target = np.array([[9, 2, 9, 9]] * 3, np.float32)
    np.testing.assert_allclose(targets(batch, online, target), batch.returns + batch.worth * 2)


def test_the_loss_is_of_the_move_that_was_made_and_never_steep() -> None:
    values = np.array([[0, 0.5, 9, 9], [3, 9, 9, 9]], np.float32)
    np.testing.assert_allclose(np.asarray(q_loss(values, np.array([1, 0]), np.zeros(2, np.float32))), [0.125, 2.5])


def test_a_full_memory_holds_the_newest_and_draws_each_of_them() -> None:
    memory = Replay(10, SIZE)
    for step in range(3):
        memory.add(transitions(explored(4, 1, step), 0.9))
        drawn = memory.draw(1, np.random.default_rng(0))
        assert drawn.observations.shape == (1, SIZE)
    assert memory.size == 10
    marks = Transitions(
        observations=np.zeros((7, SIZE), np.uint8),
        actions=np.zeros(7, np.uint8),
        returns=np.arange(100, 107, dtype=np.float32),
        later=np.zeros((7, SIZE), np.uint8),
        worth=np.zeros(7, np.float32),
    )
    memory.add(marks)
    drawn = memory.draw(1000, np.random.default_rng(0))
    assert set(drawn.returns[drawn.returns >= 100].tolist()) == set(range(100, 107))
    assert (drawn.returns < 100).any()
    memory.add(Transitions(**{name: np.repeat(getattr(marks, name), 3, axis=0) for name in marks.__struct_fields__}))
    assert memory.draw(1000, np.random.default_rng(0)).returns.min() >= 103, "of more than it holds, the last ones"


def test_each_game_explores_by_a_chance_of_its_own() -> None:
    model = build("small", "paths")
    exploring = Exploring(model, VectorSnake(64, 0), np.random.default_rng(1))
    played = [exploring.play(16) for _ in range(20)]
    values = compiled_call(reader(model))
    off = np.zeros(64)
    for one in played:
        assert one.observations.shape == (17, 64, layout_of(model).size)
        best = [np.asarray(values(observations)[0]).argmax(axis=1) for observations in one.observations[:-1]]
        off += (one.actions != best).sum(axis=0)
    assert off[:8].mean() > 8, "one in ten of 320, and three of four of these are not the best by luck"
    assert off[-16:].mean() < 4
    assert sum(one.games for one in played) == sum(one.ended.sum() for one in played)
    assert sum(one.scores.size for one in played) == sum(one.ended[:, 32:].sum() for one in played)
    np.testing.assert_array_equal(played[0].observations[-1], played[1].observations[0])


def test_the_scores_of_a_single_game_are_told() -> None:
    played = Exploring(build("small"), VectorSnake(1, 0), np.random.default_rng(1)).play(120)
    assert played.scores.size == played.ended.sum() >= 1


def test_what_was_explored_travels_and_what_is_none_is_an_error() -> None:
    whole = explored(3, 2).arrays()
    assert explored_from(whole, SIZE).steps == 6
    for name, array in {
        "observations": whole["observations"][:-1],
        "rewards": whole["rewards"].astype(np.float64),
        "actions": whole["actions"] + 4,
        "ended": whole["ended"][:, :1],
    }.items():
        with pytest.raises(ValueError, match=r"action|observations|rewards|ended"):
            explored_from(whole | {name: array}, SIZE)
    with pytest.raises(ValueError, match="observations is"):
        explored_from(whole, SIZE + 1)
    with pytest.raises(ValueError, match="a rollout has"):
        explored_from({"observations": whole["observations"]}, SIZE)


@pytest.mark.timeout(1200)  # seconds alone, more on a busy machine
def test_it_learns_what_a_move_is_worth_on_a_board_and_on_all_turned_ones() -> None:
    keras.utils.set_random_seed(3)
    settings = Settings(algo="qlearning", learning_rate=0.005, discount=0.97)
    model = build(settings.network, settings.seen)
    learner = QLearning(model, settings, np.random.default_rng(0))
    steps, games = 16, 64
    actions = np.random.default_rng(1).integers(4, size=(steps, games)).astype(np.uint8)
    board, hunger = VectorSnake(1, 1).frames, np.zeros(1, np.uint8)
    observed = judge(model, board, hunger).observations[0]
    tried = Explored(
        observations=np.broadcast_to(observed, (steps + 1, games, observed.size)),
        actions=actions,
        rewards=(actions == 2).astype(np.float32),
        ended=np.ones((steps, games), np.bool_),
        scores=np.empty(0, np.int64),
    )
    for _ in range(60):
        assert not learner.learn(tried, 0.0)
    for symmetry in range(SYMMETRIES):
        frames, (best,) = turned(board, np.array([2]), symmetry)
        values = judge(model, frames, hunger)[0][0]
        assert values[best] > 0.6
        assert np.delete(values, best).max() < 0.3
    weights = [weight.copy() for weight in model.get_weights()]
    assert not learner.learn(tried, 1.0)
    assert all((one == other).all() for one, other in zip(weights, model.get_weights(), strict=True)), "at the end"


def test_rewards_are_scaled_so_that_what_moves_are_worth_stays_as_large() -> None:
    settings = Settings(algo="qlearning", discount=0.995)
    learner = QLearning(build(settings.network, settings.seen), settings, np.random.default_rng(0))
    fruit = replace(
        explored(1, 1),
        observations=np.zeros((2, 1, layout_of(build("small", "paths")).size), np.uint8),
        rewards=np.ones((1, 1), np.float32),
    )
    learner.learn(fruit, 0.0)
    assert learner._memory.draw(1, np.random.default_rng(0)).returns[0] == pytest.approx(0.005 / 0.03)
