"""Many games at once in NumPy, for actors. Must give the same game as environment.py, and knows no network."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, PATIENCE, SIDE, START, Actions, Frames

__all__ = ["VectorSnake"]

_WALL: Final = CELLS


class VectorSnake:
    """`games` games in step with each other; one that ends starts again in the same step.

    The same seed and the same actions give the same games. `frames`, uint8 [games, 10, 10], is a
    new array after each step.
    """

    def __init__(self, games: int, seed: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._every = np.arange(games)
        self._life = np.zeros((games, CELLS), np.uint8)
        self._head = np.zeros(games, np.intp)
        self._fruit = np.zeros(games, np.intp)
        self._length = np.zeros(games, np.intp)
        self._hunger = np.zeros(games, np.intp)
        self._start(self._every)
        self.frames = self._draw()

    def step(self, actions: Actions) -> tuple[Frames, NDArray[np.float32], NDArray[np.bool_], NDArray[np.intp]]:
        """Move every head by one cell; `actions` is [games], see rules.MOVES.

        Returns the frames (of the next game where one ended), the rewards [games], which games ended [games], and the
        scores of those that did, in the order of the games.
        """
        cell = _NEXT[self._head, actions]
        eats = cell == self._fruit
        self._life -= (self._life > 0) & ~eats[:, None]
        dies = (cell == _WALL) | (self._life[self._every, cell % CELLS] > 0)
        self._length += eats
        self._hunger = np.where(eats, 0, self._hunger + 1)
        moving = np.flatnonzero(~dies)
        self._head[moving] = cell[moving]
        self._life[moving, cell[moving]] = self._length[moving]
        full = self._length == CELLS
        self._place_fruit(np.flatnonzero(eats & ~full))
        ended = dies | full | (self._hunger >= PATIENCE)
        over = np.flatnonzero(ended)
        scores = self._length[over] - len(START)
        self._start(over)
        self.frames = self._draw()
        return self.frames, eats.astype(np.float32), ended, scores

    def _start(self, games: NDArray[np.intp]) -> None:
        self._life[games] = 0
        for age, (row, column) in enumerate(START):
            self._life[games, row * SIDE + column] = len(START) - age
        self._head[games] = START[0][0] * SIDE + START[0][1]
        self._length[games] = len(START)
        self._hunger[games] = 0
        self._place_fruit(games)

    def _place_fruit(self, games: NDArray[np.intp]) -> None:
        draw = self._random.random((len(games), CELLS), dtype=np.float32)
        draw[self._life[games] > 0] = -1
        self._fruit[games] = draw.argmax(axis=1)

    def _draw(self) -> Frames:
        frames = self._life.copy()
        frames[self._every, self._head] = HEAD
        frames[self._every, self._fruit] = FRUIT
        return frames.reshape(-1, SIDE, SIDE)


def _next_cells() -> NDArray[np.intp]:
    """[cell, action] -> the cell that a head comes to, or `_WALL`."""
    table = np.full((CELLS, len(MOVES)), _WALL, np.intp)
    for cell in range(CELLS):
        for action, (down, right) in enumerate(MOVES):
            row, column = cell // SIDE + down, cell % SIDE + right
            if 0 <= row < SIDE and 0 <= column < SIDE:
                table[cell, action] = row * SIDE + column
    return table


_NEXT: Final = _next_cells()
