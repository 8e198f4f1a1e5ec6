"""Many games of Snake as a loop that Numba compiles: same rules, same `step` as workloads/snake/vector.py."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, PATIENCE, SIDE, START, Actions, Frames

__all__ = ["NumbaSnake", "advance"]

_ROW, _COLUMN, _FRUIT_AT, _LENGTH, _HUNGER, _NUMBERS = range(6)
_START_LENGTH: Final = len(START)


class NumbaSnake:
    """`games` games in step with each other; one that ends starts again in the same step. `frames`: see rules.py.

    The loop is compiled here, which takes seconds; with `compiled` false it stays Python. Raises ImportError.
    """

    def __init__(self, games: int, seed: int | None = None, *, compiled: bool = True) -> None:
        del seed  # Numba has random numbers of its own
        self._advance: Any = advance
        if compiled:
            import numba

            self._advance = numba.njit(advance)
        self._life = np.zeros((games, CELLS), np.uint8)
        self._numbers = np.zeros((games, _NUMBERS), np.int64)
        self._numbers[:, _HUNGER] = PATIENCE  # nobody plays yet: all games end with this step, and so begin
        self.step(np.zeros(games, np.uint8))

    @property
    def hunger(self) -> NDArray[np.uint8]:
        """The hunger of each game [games]."""
        return self._numbers[:, _HUNGER].astype(np.uint8)

    def step(self, actions: Actions) -> tuple[Frames, NDArray[np.float32], NDArray[np.bool_], NDArray[np.intp]]:
        """Return the frames, the rewards, which games ended, and the scores of those."""
        games = len(self._life)
        frames = np.empty((games, CELLS), np.uint8)
        rewards, ended, scores = np.empty(games, np.float32), np.empty(games, np.bool_), np.empty(games, np.intp)
        self._advance(self._life, self._numbers, actions, frames, (rewards, ended, scores))
        self.frames = frames.reshape(-1, SIDE, SIDE)
        return self.frames, rewards, ended, scores[ended]


def advance(life: Any, numbers: Any, actions: Any, frames: Any, results: Any) -> None:
    """Move every head by one cell, and write what came of it into `frames` and `results`."""
    rewards, ended, scores = results
    for game in range(len(life)):
        cells, number = life[game], numbers[game]
        down, right = MOVES[actions[game]]
        row, column = number[_ROW] + down, number[_COLUMN] + right
        dies = not (0 <= row < SIDE and 0 <= column < SIDE)
        cell = 0 if dies else row * SIDE + column
        eats = not dies and cell == number[_FRUIT_AT]
        if not eats:
            for other in range(CELLS):
                cells[other] -= cells[other] > 0
        number[_HUNGER] = 0 if eats else number[_HUNGER] + 1
        number[_LENGTH] += eats
        dies = dies or cells[cell] > 0
        if not dies:
            number[_ROW], number[_COLUMN] = row, column
            cells[cell] = number[_LENGTH]
        ends = dies or number[_LENGTH] == CELLS or number[_HUNGER] >= PATIENCE
        rewards[game], ended[game], scores[game] = eats, ends, number[_LENGTH] - _START_LENGTH
        if ends:
            cells[:] = 0
            for age, (start_row, start_column) in enumerate(START):
                cells[start_row * SIDE + start_column] = _START_LENGTH - age
            number[_ROW], number[_COLUMN] = START[0]
            number[_LENGTH], number[_HUNGER] = _START_LENGTH, 0
        if ends or eats:
            number[_FRUIT_AT] = np.random.randint(CELLS)  # noqa: NPY002 (what Numba knows)
            while cells[number[_FRUIT_AT]] > 0:
                number[_FRUIT_AT] = np.random.randint(CELLS)  # noqa: NPY002
        for other in range(CELLS):
            frames[game, other] = cells[other]
        frames[game, number[_ROW] * SIDE + number[_COLUMN]] = HEAD
        frames[game, number[_FRUIT_AT]] = FRUIT
