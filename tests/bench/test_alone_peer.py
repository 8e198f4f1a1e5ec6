"""The program that learns Snake alone sees, reads and turns boards as the product does: their speeds compare."""

import numpy as np
from keras import ops

from bench.peers import alone
from bench.peers.alone_numba import LAYOUT, MOVE_OF, plain, read
from workloads.snake import a2c
from workloads.snake.inputs import AroundAndPaths, Paths
from workloads.snake.settings import Settings
from workloads.snake.symmetry import turned_each
from workloads.snake.vector import VectorSnake


def boards(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Boards of long snakes and short ones."""
    snakes, random, frames, hunger = VectorSnake(16, 0), np.random.default_rng(0), [], []
    for step in range(count):
        snakes.step(np.full(16, (1, 2, 3, 3, 0, 1)[step % 6]) if step % 7 else random.integers(4, size=16))
        frames.append(snakes.frames)
        hunger.append(snakes.hunger)
    return np.concatenate(frames), np.concatenate(hunger)


def coiled() -> np.ndarray:
    """Snakes of 60 cells and more, row by row, with holes in them."""
    found = np.zeros((40, 10, 10), np.uint8)
    for number, frame in enumerate(found):
        path = [(row, column if row % 2 else 9 - column) for row in range(10) for column in range(10)]
        length = 45 + number
        for age, (row, column) in enumerate(path[:length]):
            frame[row, column] = age + 1
        row, column = path[length - 1]
        frame[row, column] = 254
        frame[9, 9 - number % 5] = 255 if length < 90 else frame[9, 9 - number % 5]
        if number % 3:
            frame[number % 7, number % 5] = 0
    return found


def test_it_sees_what_the_product_sees_and_reads_the_same_numbers() -> None:
    observe, _ = plain()
    frames, hunger = boards(40)
    frames = np.concatenate([frames, coiled()])
    hunger = np.concatenate([hunger, np.arange(40, dtype=np.uint8)])
    seen = np.empty((len(frames), LAYOUT.size), np.uint8)
    observe(frames.reshape(-1, 100), hunger, seen)
    product = np.asarray(AroundAndPaths()(frames, hunger))
    np.testing.assert_array_equal(seen, product)
    np.testing.assert_allclose(read(seen, np), np.asarray(ops.convert_to_numpy(Paths()(product))), atol=1e-6)


def test_it_turns_boards_as_the_product_does() -> None:
    observe, turn = plain()
    frames, hunger = boards(4)
    seen, images = (np.empty((len(frames), LAYOUT.size), np.uint8) for _ in range(2))
    observe(frames.reshape(-1, 100), hunger, seen)
    random = np.random.default_rng(0)
    order, symmetries = random.permutation(len(frames)), random.integers(8, size=len(frames))
    moves = random.integers(4, size=len(frames))
    turn(seen, order, symmetries, images)
    product, of_moves = turned_each(seen[order], moves[order], symmetries, LAYOUT)
    np.testing.assert_array_equal(images, product)
    np.testing.assert_array_equal(MOVE_OF[symmetries, moves[order]], of_moves)


def test_its_numbers_and_its_advantages_are_the_products() -> None:
    usual = Settings()
    assert (usual.discount, usual.learning_rate, usual.entropy) == (alone.DISCOUNT, alone.RATE, alone.ENTROPY)
    assert (usual.steps_of_rollout, a2c._MINIBATCH["small"]) == (alone.STEPS, alone.MINIBATCH)
    assert (alone.TRACE, alone.CLIP, alone.LAST_ENTROPY) == (a2c._TRACE, a2c._CLIP, a2c._LAST_ENTROPY)
    assert [alone.fallen(done) for done in (0.0, 0.6, 1.0)] == [a2c.fallen(done) for done in (0.0, 0.6, 1.0)]
    random = np.random.default_rng(0)
    rewards, values = random.random((5, 3), np.float32), random.random((6, 3), np.float32)
    ended = random.random((5, 3)) < 0.3
    product = a2c.advantages(rewards, ended, values, usual.discount)
    np.testing.assert_allclose(alone.advantages(rewards, ended, values), product, rtol=1e-5)
