"""Many games at once are the single game, many times."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, START, Frames
from workloads.snake.vector import VectorSnake

Cell = tuple[int, int]
Player = Callable[[SnakeEnvironment, np.random.Generator], int]


def fruit_of(frame: Frames) -> Cell:
    row, column = divmod(int(frame.argmax()), SIDE)
    assert frame[row, column] == FRUIT
    return row, column


def moved(cell: Cell, action: int) -> Cell:
    return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]


def at_random(_: SnakeEnvironment, random: np.random.Generator) -> int:
    """Games end at once: on walls, and on the tail."""
    return int(random.integers(len(MOVES)))


def to_the_fruit(game: SnakeEnvironment, random: np.random.Generator) -> int:
    """Mostly towards the fruit and not into what is in the way, so that snakes grow long."""
    body = set(game.body[:-1])
    places = [(action, moved(game.body[0], action)) for action in random.permutation(len(MOVES)).tolist()]
    safe = [
        (abs(at[0] - game.fruit[0]) + abs(at[1] - game.fruit[1]), place, action)
        for place, (action, at) in enumerate(places)
        if 0 <= at[0] < SIDE and 0 <= at[1] < SIDE and at not in body
    ]
    return min(safe)[2] if safe and random.random() < 0.995 else at_random(game, random)


def after_the_tail(game: SnakeEnvironment, random: np.random.Generator) -> int:
    """On the last cell of the tail wherever that is near, which goes on until the snake starves."""
    near = [action for action in range(len(MOVES)) if moved(game.body[0], action) == game.body[-1]]
    return near[0] if near else to_the_fruit(game, random)


def over_the_whole_board(game: SnakeEnvironment, _: np.random.Generator) -> int:
    """Round and round through each cell, up in rows and down in the first column: each game fills the board."""
    up, right, down, left = range(4)
    row, column = game.body[0]
    if column == 0:
        return down if row < SIDE - 1 else right
    if row % 2:
        return right if column < SIDE - 1 else up
    return left if column > 1 or row == 0 else up


def compare(players: list[Player], steps: int, seed: int) -> Counter[str]:
    """Play one game for each of `players` both ways, and return how often what happened."""
    random = np.random.default_rng(seed)
    vector = VectorSnake(len(players), seed)
    singles = [SnakeEnvironment() for _ in players]
    for single, frame in zip(singles, vector.frames, strict=True):
        single.reset(seed=0)
        single.fruit = fruit_of(frame)
    seen: Counter[str] = Counter()
    for _ in range(steps):
        actions = [player(single, random) for player, single in zip(players, singles, strict=True)]
        frames, rewards, ended, scores = vector.step(np.array(actions, np.uint8))
        finished = []
        for index, single in enumerate(singles):
            follows = moved(single.body[0], actions[index]) == single.body[-1]
            _, reward, terminated, truncated, info = single.step(actions[index])
            assert (reward, terminated or truncated) == (rewards[index], ended[index])
            full = len(single.body) == CELLS
            seen.update(fruit=int(reward), starved=truncated, full=full, dead=terminated and not full)
            seen.update(long=len(single.body) > CELLS // 2, follows=follows and not terminated)
            if ended[index]:
                finished.append(info["score"])
                single.reset()
            single.fruit = fruit_of(frames[index])
            np.testing.assert_array_equal(single.frame(), frames[index])
        assert scores.tolist() == finished
    return seen


def test_thousands_of_short_games_are_the_same_in_both_forms() -> None:
    seen = compare([at_random] * 400, steps=80, seed=1)
    assert seen["dead"] > 2000
    assert seen["fruit"] > 200


def test_games_that_grow_long_are_the_same_in_both_forms() -> None:
    seen = compare([to_the_fruit] * 60, steps=500, seed=2)
    assert seen["dead"] > 50
    assert seen["fruit"] > 1500


def test_snakes_that_follow_their_tail_until_they_starve_are_the_same_in_both_forms() -> None:
    seen = compare([after_the_tail] * 60, steps=400, seed=3)
    assert seen["starved"] > 60
    assert seen["follows"] > 5000


def test_games_that_fill_the_board_are_the_same_in_both_forms() -> None:
    seen = compare([over_the_whole_board] * 6, steps=2800, seed=4)
    assert seen["full"] >= 4
    assert seen["long"] > 1000


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    players=st.lists(st.sampled_from([at_random, to_the_fruit, after_the_tail, over_the_whole_board]), max_size=9),
)
def test_both_forms_play_the_same_game_whoever_plays_beside_whom(seed: int, players: list[Player]) -> None:
    compare(players, steps=150, seed=seed)


@settings(max_examples=20, deadline=None)
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
