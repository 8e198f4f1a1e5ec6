"""Many games of Snake in NumPy, as one writes it at first: each rule an expression over all games, one after the other.

The same rules and the same `step` as workloads/snake/vector.py, which is measured beside it.
"""

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, PATIENCE, SIDE, START, Actions, Frames

__all__ = ["NumpySnake"]

_DOWN = np.array([down for down, _ in MOVES])
_RIGHT = np.array([right for _, right in MOVES])


class NumpySnake:
    """`games` games in step with each other; one that ends starts again in the same step. `frames`: see rules.py."""

    def __init__(self, games: int, seed: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._every = np.arange(games)
        self._life = np.zeros((games, CELLS), np.uint8)
        self._row, self._column, self._fruit, self._length, self._hunger = np.zeros((5, games), np.intp)
        self._start(self._every)
        self.frames = self._draw()

    def step(self, actions: Actions) -> tuple[Frames, NDArray[np.float32], NDArray[np.bool_], NDArray[np.intp]]:
        """Return the frames, the rewards, which games ended, and the scores of those."""
        row, column = self._row + _DOWN[actions], self._column + _RIGHT[actions]
        inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
        cell = np.where(inside, row * SIDE + column, 0)
        eats = inside & (cell == self._fruit)
        self._life -= (self._life > 0) & ~eats[:, None]
        dies = ~inside | (self._life[self._every, cell] > 0)
        self._length += eats
        self._hunger = np.where(eats, 0, self._hunger + 1)
        moving = np.flatnonzero(~dies)
        self._row[moving], self._column[moving] = row[moving], column[moving]
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
        self._row[games], self._column[games] = START[0]
        self._length[games] = len(START)
        self._hunger[games] = 0
        self._place_fruit(games)

    def _place_fruit(self, games: NDArray[np.intp]) -> None:
        draw = self._random.random((len(games), CELLS), dtype=np.float32)
        draw[self._life[games] > 0] = -1
        self._fruit[games] = draw.argmax(axis=1)

    def _draw(self) -> Frames:
        frames = self._life.copy()
        frames[self._every, self._row * SIDE + self._column] = HEAD
        frames[self._every, self._fruit] = FRUIT
        return frames.reshape(-1, SIDE, SIDE)
