"""Many games at once in NumPy, for actors. Must give the same game as environment.py, and knows no network.

The boards are the state: a step makes the next boards from the last ones with two passes over their bytes, and then
writes only the cells that are not one step older: heads, fruits, and the boards of games that ate or ended.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import CELLS, FRUIT, HEAD, MOVES, PATIENCE, SIDE, START, Actions, Frames, Hunger

__all__ = ["VectorSnake"]

_Cells = NDArray[np.intp]


class VectorSnake:
    """`games` games in step with each other; one that ends starts again in the same step.

    The same seed and the same actions give the same games. `frames`, uint8 [games, 10, 10], is a new array after each
    step; nobody can write to it, because the next step is made from it.
    """

    def __init__(self, games: int, seed: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._first = np.arange(0, games * CELLS, CELLS)
        self._head = np.full(games, _CELL_OF_START)
        self._fruit = np.zeros(games, np.intp)
        self._length = np.full(games, len(START), np.uint8)
        self._hunger = np.zeros(games, np.uint8)
        boards = np.tile(_BOARD_OF_START, games)
        self._place_fruit(boards, np.arange(games))
        self._show(boards)

    @property
    def hunger(self) -> Hunger:
        """The hunger of each game [games]."""
        return self._hunger.copy()

    def step(self, actions: Actions) -> tuple[Frames, NDArray[np.float32], NDArray[np.bool_], NDArray[np.intp]]:
        """Move every head by one cell; `actions` is [games], see rules.MOVES.

        Returns the frames (of the next game where one ended), the rewards [games], which games ended [games], and the
        scores of those that did, in the order of the games. Raises IndexError for an action that is not 0..3.
        """
        if not 0 <= np.bitwise_or.reduce(actions) < len(MOVES):
            raise IndexError("an action is not one of 0 up, 1 right, 2 down, 3 left")
        before = self._boards
        neck = self._first + self._head
        self._head = _NEXT[self._head * len(MOVES) + actions]
        head = self._first + self._head
        found = before[head]
        eats = found == FRUIT
        boards = before - (before > 0).view(np.uint8)
        eaters = eats.nonzero()[0]
        boards.reshape(-1, CELLS)[eaters] = before.reshape(-1, CELLS)[eaters]
        self._length += eats.view(np.uint8)
        boards[neck] = self._length - 1
        boards[self._fruit] = FRUIT
        boards[head] = HEAD
        self._hunger += 1
        self._hunger[eaters] = 0
        ended = (found > _LAST_OF_TAIL) ^ eats
        ended |= self._hunger >= PATIENCE
        ended |= self._length == CELLS
        over = ended.nonzero()[0]
        scores = self._length[over].astype(np.intp) - len(START)
        self._start(boards, over)
        self._place_fruit(boards, (ended | eats).nonzero()[0])
        self._show(boards)
        return self.frames, eats.astype(np.float32), ended, scores

    def _show(self, boards: NDArray[np.uint8]) -> None:
        boards.flags.writeable = False
        self._boards = boards
        self.frames: Frames = boards.reshape(-1, SIDE, SIDE)

    def _start(self, boards: NDArray[np.uint8], games: _Cells) -> None:
        boards.reshape(-1, CELLS)[games] = _BOARD_OF_START
        self._head[games] = _CELL_OF_START
        self._length[games] = len(START)
        self._hunger[games] = 0

    def _place_fruit(self, boards: NDArray[np.uint8], games: _Cells) -> None:
        """Put a fruit on a free cell, each as likely: a guess, and where that was wrong, a draw among the free ones."""
        cells = (self._random.random(len(games)) * CELLS).astype(np.intp)
        cells += self._first[games]
        wrong = boards[cells].nonzero()[0]
        if wrong.size:
            free = boards.reshape(-1, CELLS)[games[wrong]] == 0
            draw = self._random.random(free.shape, dtype=np.float32)
            cells[wrong] = self._first[games[wrong]] + (draw + free).argmax(axis=1)
        boards[cells] = FRUIT
        self._fruit[games] = cells


def _next_cells() -> _Cells:
    """[cell * 4 + action] -> the cell that a head comes to: at a wall the one where it is, which is deadly, too."""
    table = np.arange(CELLS).repeat(len(MOVES))
    for cell in range(CELLS):
        for action, (down, right) in enumerate(MOVES):
            row, column = cell // SIDE + down, cell % SIDE + right
            if 0 <= row < SIDE and 0 <= column < SIDE:
                table[cell * len(MOVES) + action] = row * SIDE + column
    return table


def _board_of_start() -> NDArray[np.uint8]:
    board = np.zeros(CELLS, np.uint8)
    for age, (row, column) in enumerate(START):
        board[row * SIDE + column] = len(START) - age if age else HEAD
    return board


_NEXT: Final = _next_cells()
_BOARD_OF_START: Final = _board_of_start()
_CELL_OF_START: Final = START[0][0] * SIDE + START[0][1]
_LAST_OF_TAIL: Final = 1
