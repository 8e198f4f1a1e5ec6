"""The rules of the single game, one by one."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import FRUIT, HEAD, PATIENCE, SIDE

UP, RIGHT, DOWN, LEFT = range(4)


@pytest.fixture
def game() -> SnakeEnvironment:
    game = SnakeEnvironment()
    game.reset(seed=1)
    game.fruit = (0, 0)
    return game


def test_it_is_a_gymnasium_environment() -> None:
    check_env(SnakeEnvironment(render_mode="ansi"), skip_render_check=False)
    check_env(SnakeEnvironment(render_mode="rgb_array"), skip_render_check=False)


def test_the_same_seed_gives_the_same_fruits() -> None:
    one, other = SnakeEnvironment(), SnakeEnvironment()
    np.testing.assert_array_equal(one.reset(seed=7)[0], other.reset(seed=7)[0])


def test_it_starts_with_three_cells_and_a_fruit_that_is_not_on_them() -> None:
    for seed in range(300):
        frame, info = SnakeEnvironment().reset(seed=seed)
        assert info == {"score": 0}
        assert sorted(frame[frame > 0]) == [1, 2, HEAD, FRUIT]


@pytest.mark.parametrize(("action", "head"), [(UP, (4, 5)), (RIGHT, (5, 6)), (DOWN, (6, 5))])
def test_an_action_moves_the_head_and_the_tail_follows(
    game: SnakeEnvironment, action: int, head: tuple[int, int]
) -> None:
    frame, reward, terminated, truncated, info = game.step(action)
    assert game.body == [head, (5, 5), (5, 4)]
    assert (frame[head], frame[5, 5], frame[5, 4], frame[5, 3]) == (HEAD, 2, 1, 0)
    assert (reward, terminated, truncated, info["score"]) == (0, False, False, 0)


def test_a_fruit_is_worth_one_and_one_cell(game: SnakeEnvironment) -> None:
    game.fruit = (5, 6)
    frame, reward, terminated, _, info = game.step(RIGHT)
    assert (reward, terminated, info["score"], len(game.body)) == (1, False, 1, 4)
    assert (frame[5, 5], frame[5, 4], frame[5, 3]) == (3, 2, 1)
    assert (frame == FRUIT).sum() == 1


def test_the_wall_ends_the_game(game: SnakeEnvironment) -> None:
    results = [game.step(RIGHT) for _ in range(SIDE - 5)]
    assert [terminated for _, _, terminated, _, _ in results] == [False] * (SIDE - 6) + [True]
    with pytest.raises(RuntimeError, match="reset"):
        game.step(UP)


def test_the_tail_ends_the_game(game: SnakeEnvironment) -> None:
    assert game.step(LEFT)[2]


def test_the_head_may_follow_the_last_cell_of_the_tail(game: SnakeEnvironment) -> None:
    game.body = [(5, 5), (5, 4), (6, 4), (6, 5)]
    assert not game.step(DOWN)[2]
    assert game.body == [(6, 5), (5, 5), (5, 4), (6, 4)]


def test_a_hundred_steps_without_a_fruit_end_the_game(game: SnakeEnvironment) -> None:
    circle = [UP, LEFT, DOWN, RIGHT]
    results = [game.step(circle[step % 4]) for step in range(PATIENCE)]
    assert [truncated for _, _, _, truncated, _ in results] == [False] * (PATIENCE - 1) + [True]
    assert not any(terminated for _, _, terminated, _, _ in results)


def test_a_fruit_starts_the_hundred_steps_anew(game: SnakeEnvironment) -> None:
    circle = [UP, LEFT, DOWN, RIGHT]
    for step in range(PATIENCE - 1):
        game.step(circle[step % 4])
    row, column = game.body[0]
    game.fruit = (row, column + 1)
    assert game.step(RIGHT)[1:4] == (1, False, False)
    assert not game.step(UP)[3]


def test_a_full_board_ends_the_game(game: SnakeEnvironment) -> None:
    rows = [[(row, column) for column in range(SIDE)][:: 1 if row % 2 else -1] for row in range(SIDE)]
    path = [cell for row in rows for cell in row]
    game.body, game.fruit = path[1:], path[0]
    frame, reward, terminated, _, info = game.step(RIGHT)
    assert (reward, terminated, info["score"]) == (1, True, 97)
    assert FRUIT not in frame


@pytest.mark.parametrize("action", [-1, 4])
def test_an_unknown_action_is_refused(game: SnakeEnvironment, action: int) -> None:
    with pytest.raises(ValueError, match="0 up, 1 right"):
        game.step(action)


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(RuntimeError, match="reset"):
        SnakeEnvironment().step(UP)


def test_an_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="human"):
        SnakeEnvironment(render_mode="human")


def test_it_draws_itself_as_text_and_as_an_image(game: SnakeEnvironment) -> None:
    game.render_mode = "ansi"
    text = game.render()
    assert isinstance(text, str)
    lines = text.split("\n")
    assert {len(line) for line in lines} == {2 * SIDE + 2}
    assert lines[1].startswith("│()")
    assert "░░▓▓██" in lines[6]
    game.render_mode = "rgb_array"
    image = game.render()
    assert isinstance(image, np.ndarray)
    assert image.shape == (240, 240, 3)
    assert gymnasium.spaces.Box(0, 255, image.shape, np.uint8).contains(image)
