"""Many games at once are the single game, many times."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, SIDE, START, Actions, Frames
from workloads.snake.vector import VectorSnake


def fruit_of(frame: Frames) -> tuple[int, int]:
    row, column = np.argwhere(frame == FRUIT)[0]
    return int(row), int(column)


def careful_actions(games: list[SnakeEnvironment], random: np.random.Generator) -> Actions:
    """Random moves, mostly towards the fruit and not into what is in the way, so that snakes grow long."""
    actions = []
    for game in games:
        moves = list(enumerate(MOVES))
        random.shuffle(moves)
        places = [(action, (game.body[0][0] + down, game.body[0][1] + right)) for action, (down, right) in moves]
        safe = [
            (abs(at[0] - game.fruit[0]) + abs(at[1] - game.fruit[1]), action)
            for action, at in places
            if 0 <= at[0] < SIDE and 0 <= at[1] < SIDE and at not in game.body[:-1]
        ]
        greedy = safe and random.random() < 0.97
        actions.append(min(safe)[1] if greedy else int(random.integers(len(MOVES))))
    return np.array(actions)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9))
def test_both_forms_play_the_same_game(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    vector = VectorSnake(count, seed)
    singles = [SnakeEnvironment() for _ in range(count)]
    for single, frame in zip(singles, vector.frames, strict=True):
        single.reset(seed=0)
        single.fruit = fruit_of(frame)
    for _ in range(250):
        actions = careful_actions(singles, random)
        frames, rewards, ended, scores = vector.step(actions)
        finished = []
        for index, single in enumerate(singles):
            _, reward, terminated, truncated, info = single.step(int(actions[index]))
            assert (reward, terminated or truncated) == (rewards[index], ended[index])
            if ended[index]:
                finished.append(info["score"])
                single.reset()
            single.fruit = fruit_of(frames[index])
            np.testing.assert_array_equal(single.frame(), frames[index])
        assert scores.tolist() == finished


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
        for ours, theirs in zip(one.step(of_step), other.step(of_step), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_frames_that_were_given_out_are_never_written_again() -> None:
    games = VectorSnake(8, 0)
    first = games.frames
    before = first.copy()
    games.step(np.zeros(8, np.int64))
    np.testing.assert_array_equal(first, before)


def test_every_free_cell_gets_its_share_of_fruits() -> None:
    places = VectorSnake(97_000, 3).frames.reshape(-1, CELLS).argmax(axis=1)
    counts = np.bincount(places, minlength=CELLS)
    assert (counts > 0).sum() == CELLS - len(START)
    assert 800 < counts[counts > 0].min() <= counts.max() < 1200
