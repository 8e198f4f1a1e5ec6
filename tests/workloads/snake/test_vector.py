"""Many games at once are the single game, many times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.snake.beside import Player, after_the_tail, at_random, compare, over_the_whole_board, to_the_fruit
from workloads.snake.rules import CELLS, FRUIT, HEAD, START
from workloads.snake.vector import VectorSnake


def test_thousands_of_short_games_are_the_same_in_both_forms() -> None:
    seen = compare(VectorSnake(400, 1), [at_random] * 400, steps=80, seed=1)
    assert seen["dead"] > 2000
    assert seen["fruit"] > 200


def test_games_that_grow_long_are_the_same_in_both_forms() -> None:
    seen = compare(VectorSnake(60, 2), [to_the_fruit] * 60, steps=500, seed=2)
    assert seen["dead"] > 50
    assert seen["fruit"] > 1500


def test_snakes_that_follow_their_tail_until_they_starve_are_the_same_in_both_forms() -> None:
    seen = compare(VectorSnake(60, 3), [after_the_tail] * 60, steps=400, seed=3)
    assert seen["starved"] > 60
    assert seen["follows"] > 5000


def test_games_that_fill_the_board_are_the_same_in_both_forms() -> None:
    seen = compare(VectorSnake(6, 4), [over_the_whole_board] * 6, steps=2800, seed=4)
    assert seen["full"] >= 4
    assert seen["long"] > 1000


def test_hunger_is_the_steps_since_the_last_fruit_or_the_start_and_a_copy() -> None:
    games, random = VectorSnake(200, 5), np.random.default_rng(5)
    expected = np.zeros(200, np.int64)
    kept = games.hunger
    for _ in range(60):
        np.testing.assert_array_equal(games.hunger, expected)
        _, rewards, ended, _ = games.step(random.integers(4, size=200))
        expected = np.where(ended | (rewards > 0), 0, expected + 1)
    assert expected.max() > 10
    assert not kept.any()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    players=st.lists(st.sampled_from([at_random, to_the_fruit, after_the_tail, over_the_whole_board]), max_size=9),
)
def test_both_forms_play_the_same_game_whoever_plays_beside_whom(seed: int, players: list[Player]) -> None:
    compare(VectorSnake(len(players), seed), players, steps=150, seed=seed)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_frame_always_holds_one_fruit_one_head_and_a_whole_tail(seed: int) -> None:
    random = np.random.default_rng(seed)
    games = VectorSnake(50, seed)
    for _ in range(60):
        frames = games.step(random.integers(0, 4, 50))[0].reshape(50, CELLS)
        assert ((frames == FRUIT).sum(axis=1) == 1).all()
        assert ((frames == HEAD).sum(axis=1) == 1).all()
        for frame in frames:
            tail = np.sort(frame[(frame > 0) & (frame < HEAD)])
            np.testing.assert_array_equal(tail, np.arange(1, tail.size + 1))
            assert tail.size >= len(START) - 1


def test_the_same_seed_and_actions_give_the_same_games() -> None:
    one, other = VectorSnake(20, 5), VectorSnake(20, 5)
    actions = np.random.default_rng(0).integers(0, 4, (100, 20))
    for of_step in actions:
        for ours, theirs in zip(one.step(of_step), other.step(of_step.astype(np.uint8)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_what_was_given_out_is_never_written_again() -> None:
    games = VectorSnake(300, 0)
    random = np.random.default_rng(0)
    given_out = [(array, array.copy()) for _ in range(20) for array in games.step(random.integers(0, 4, 300))]
    for array, before in given_out:
        np.testing.assert_array_equal(array, before)


def test_nobody_can_change_a_game_through_its_frames() -> None:
    games = VectorSnake(8, 0)
    with pytest.raises(ValueError, match="read-only"):
        games.frames[0, 0, 0] = FRUIT
    with pytest.raises(ValueError, match="read-only"):
        games.step(np.zeros(8, np.uint8))[0][:] = 0


@pytest.mark.parametrize("action", [-1, 4, 255])
def test_an_unknown_action_is_refused_and_changes_nothing(action: int) -> None:
    games, untouched = VectorSnake(8, 0), VectorSnake(8, 0)
    with pytest.raises(IndexError, match="0 up, 1 right"):
        games.step(np.array([0, 1, 2, 3, action, 1, 1, 1]))
    actions = np.array([0, 1, 2, 0, 0, 1, 1, 1])
    for ours, theirs in zip(games.step(actions), untouched.step(actions), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_free_cell_gets_its_share_of_fruits() -> None:
    places = VectorSnake(97_000, 3).frames.reshape(-1, CELLS).argmax(axis=1)
    counts = np.bincount(places, minlength=CELLS)
    assert (counts > 0).sum() == CELLS - len(START)
    assert 800 < counts[counts > 0].min() <= counts.max() < 1200


@pytest.mark.parametrize("free", [1, 10, 60])
def test_every_free_cell_gets_its_share_of_fruits_beside_a_long_snake(free: int) -> None:
    games = VectorSnake(free * 1000, 7)
    cells = np.random.default_rng(free).permutation(CELLS)[:free]
    board = np.full(CELLS, 9, np.uint8)
    board[cells] = 0
    boards = np.tile(board, free * 1000)
    games._place_fruit(boards, np.arange(free * 1000))
    counts = np.bincount(boards.reshape(-1, CELLS).argmax(axis=1), minlength=CELLS)
    assert set(counts.nonzero()[0]) == set(cells)
    assert 800 < counts[cells].min() <= counts.max() < 1200
