"""One game of Snake as the original had it: a state of floats, made anew at each step."""

import random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, MOVES, SIDE, START

__all__ = ["BODY", "FRUIT", "HEAD", "OriginalGame"]

HEAD, BODY, FRUIT = 0.5, 1.0, -1.0
State = NDArray[np.float64]
_Cell = tuple[int, int]
_FIRST: Final[list[_Cell]] = [(int(row), int(column)) for row, column in START]


class OriginalGame:
    """One game, from `start` to the step that ends it."""

    def __init__(self) -> None:
        self.score = 0
        self._body: list[_Cell] = []
        self._fruit: _Cell = (0, 0)

    def start(self) -> State:
        """Begin a game and return its first state [10, 10]."""
        self._body, self.score = list(_FIRST), 0
        self._place_fruit()
        return self._state()

    def step(self, action: int) -> tuple[State, int, bool]:
        """Move, and return the next state, 1 for a fruit, and whether the game is over."""
        down, right = MOVES[action]
        head = (self._body[0][0] + down, self._body[0][1] + right)
        eats = head == self._fruit
        tail = self._body if eats else self._body[:-1]
        if not (0 <= head[0] < SIDE and 0 <= head[1] < SIDE) or head in tail:
            return self._state(), 0, True
        self._body = [head, *tail]
        if eats:
            self.score += 1
            if len(self._body) == CELLS:
                return self._state(), 1, True
            self._place_fruit()
        return self._state(), int(eats), False

    def _place_fruit(self) -> None:
        while (cell := (random.randrange(SIDE), random.randrange(SIDE))) in self._body:  # noqa: S311 (a game)
            pass
        self._fruit = cell

    def _state(self) -> State:
        state: NDArray[Any] = np.zeros((SIDE, SIDE))
        for cell in self._body:
            state[cell] = BODY
        state[self._body[0]] = HEAD
        state[self._fruit] = FRUIT
        return state
