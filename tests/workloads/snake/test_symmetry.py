"""A turned game is a game: the rules do not know where up is."""

import numpy as np
import pytest

from workloads.snake.environment import SnakeEnvironment
from workloads.snake.rules import FRUIT, HEAD, MOVES, Frames
from workloads.snake.symmetry import SYMMETRIES, Layout, turned, turned_each


def game_from(frame: Frames) -> SnakeEnvironment:
    game = SnakeEnvironment()
    game.reset(seed=0)
    order = np.where(frame == HEAD, HEAD, np.where(frame == FRUIT, 0, frame))
    cells = sorted(((int(order[at]), at) for at in zip(*np.nonzero(order), strict=True)), reverse=True)
    game.body = [(int(row), int(column)) for _, (row, column) in cells]
    row, column = np.argwhere(frame == FRUIT)[0]
    game.fruit = (int(row), int(column))
    return game


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
@pytest.mark.parametrize("action", range(len(MOVES)))
def test_a_turned_action_in_a_turned_game_gives_the_turned_frame(symmetry: int, action: int) -> None:
    game = SnakeEnvironment()
    game.reset(seed=0)
    game.body, game.fruit = [(4, 6), (4, 5), (5, 5), (5, 4)], (1, 8)
    frames, actions = turned(game.frame()[None], np.array([action]), symmetry)
    image = game_from(frames[0])
    np.testing.assert_array_equal(image.frame(), frames[0])
    after, _, terminated, _, _ = game.step(action)
    image_after, _, image_terminated, _, _ = image.step(int(actions[0]))
    assert terminated == image_terminated
    np.testing.assert_array_equal(turned(after[None], np.array([0]), symmetry)[0][0], image_after)


def test_the_eight_are_different() -> None:
    frame = np.arange(100, dtype=np.uint8).reshape(1, 10, 10)
    assert len({turned(frame, np.array([0]), symmetry)[0].tobytes() for symmetry in range(SYMMETRIES)}) == SYMMETRIES


@pytest.mark.parametrize("count", [SYMMETRIES * len(MOVES), 1, 0])
def test_each_observation_is_turned_by_its_own_symmetry(count: int) -> None:
    random, layout = np.random.default_rng(0), Layout(11, counts=2, moves=len(MOVES))
    observations = random.integers(256, size=(count, layout.size)).astype(np.uint8)
    symmetries, actions = np.divmod(random.permutation(SYMMETRIES * len(MOVES))[:count], len(MOVES))
    images, goes = turned_each(observations, actions.astype(np.uint8), symmetries, layout)
    board, counts, moves = layout.parts
    for number, (observed, image) in enumerate(zip(observations, images, strict=True)):
        places, wanted = turned(
            observed[None, board].reshape(1, 11, 11), np.arange(len(MOVES)), int(symmetries[number])
        )
        assert image[board].tolist() == places.ravel().tolist()
        assert image[counts].tolist() == observed[counts].tolist()
        assert image[moves][wanted].tolist() == observed[moves].tolist()
        assert goes[number] == wanted[actions[number]]
