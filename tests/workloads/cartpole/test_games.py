"""The games beside Gymnasium's own single one, and what is learnt of the step in which a game begins anew."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from workloads.cartpole.evaluate import greedy_returns, surely
from workloads.cartpole.explorer import Explorer, curiosities
from workloads.cartpole.games import LONGEST, Games
from workloads.cartpole.network import Policy

PUSHES_RIGHT, PUSHES_LEFT = (0, 1), (1, 0)
USUAL = [2.4, 3, 0.2095, 3]


def policy(worths: tuple[float, float] = (0, 0), spread: float = 0) -> dict[str, Any]:
    """Weights of a network that always says these worths, or, with a spread, of one that is drawn."""
    shapes = {"hidden_1": (4, 64), "hidden_2": (64, 64), "worths": (64, 2)}
    random = np.random.default_rng(5)
    kernels = {f"{name}/kernel": random.normal(0, spread, shape).astype(np.float32) for name, shape in shapes.items()}
    biases = {f"{name}/bias": np.zeros(shape[1], np.float32) for name, shape in shapes.items()}
    return {**kernels, **biases, "worths/bias": np.array(worths, np.float32)}


def explorer(count: int, epsilon: float, seed: int = 0) -> Explorer:
    random = np.random.default_rng(seed)
    return Explorer(Games(count, random), np.full(count, epsilon), random)


def return_of_one(start: NDArray[np.float64], weights: dict[str, Any]) -> int:
    """What Gymnasium's single CartPole-v1 gives from that state."""
    env: Any = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.state = start
    player, result, over = Policy(weights), 0.0, False
    observation: NDArray[np.float32] = start.astype(np.float32)
    while not over:
        action = int(player.actions((observation / USUAL).astype(np.float32)[None])[0])
        observation, reward, fallen, cut, _ = env.step(action)
        result, over = result + float(reward), fallen or cut
    return int(result)


def test_returns_of_greedy_games_are_those_of_gymnasiums_single_one() -> None:
    weights = policy(spread=1)
    games = 20
    starts = Games(games, np.random.default_rng(9)).state()["state"].T
    found = greedy_returns(weights, games, seed=9)
    assert found.tolist() == [return_of_one(start, weights) for start in starts]
    assert len(set(found)) > 2, "not all fall alike"


def test_the_step_in_which_a_game_begins_anew_is_not_learnt_from() -> None:
    played = explorer(1, 0).play(policy(PUSHES_RIGHT), 40)
    ends = np.flatnonzero(played.fallen)
    assert len(ends) >= 3
    assert len(played.actions) == 40 - len(ends)
    for end in ends[:-1]:
        begins = np.abs(played.observations[end + 1] * USUAL)
        assert (begins <= 0.05 + 1e-6).all(), "what comes after an end is a start"
    together = np.delete(np.arange(len(played.actions) - 1), ends[ends < len(played.actions) - 1])
    np.testing.assert_array_equal(played.following[together], played.observations[together + 1])
    assert set(played.rewards[ends]) == {-1}
    assert played.rewards.sum() == -len(ends)


def test_a_game_that_is_cut_off_has_not_fallen() -> None:
    games = Games(2, np.random.default_rng(0))
    games.set_state({**games.state(), "steps": np.array([LONGEST - 1, 0], np.int32)})
    step = games.step(np.array([0, 0]))
    assert (step.ended.tolist(), step.fallen.tolist(), step.rewards.tolist()) == ([True, False], [False, False], [0, 0])
    assert step.returns.tolist() == [LONGEST, 1]


def test_games_whose_state_is_taken_over_go_on_alike() -> None:
    one, other = explorer(3, 0.3, seed=1), explorer(3, 0.3, seed=2)
    weights = policy(PUSHES_LEFT)
    one.play(weights, 25)
    other.games.set_state(one.games.state())
    for each in (one, other):
        each.draw_from(np.random.default_rng(7))
    first, second = (each.play(weights, 30).arrays() for each in (one, other))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_each_game_of_each_actor_is_curious_in_its_own_measure() -> None:
    all_of_them = np.concatenate([curiosities(0.5, 4, rank, 3) for rank in range(3)])
    assert len(set(all_of_them)) == 12
    assert (all_of_them.max(), all_of_them.min()) == (0.5, 0.5**8)
    assert curiosities(0.5, 1, 0, 1).tolist() == [0.5]
    np.testing.assert_array_equal(curiosities(0.5, 4, 1001, 3), curiosities(0.5, 4, 1001 % 3, 3))  # of another host


def test_curiosity_is_how_often_another_push_than_the_best_is_made() -> None:
    def to_the_left(epsilon: float) -> float:
        return float((explorer(50, epsilon).play(policy(PUSHES_LEFT), 20).actions == 0).mean())

    assert to_the_left(0) == 1
    assert 0.4 < to_the_left(1) < 0.6


def test_a_mean_is_sure_only_as_far_as_the_games_agree() -> None:
    assert surely(np.full(100, 480)) == 480
    assert surely(np.array([460, 500] * 50)) == 480 - 2 * 20 / 10
