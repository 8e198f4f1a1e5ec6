"""The rules of Snake as numbers, and what a frame holds. Knows neither how games are played nor who plays them.

A fruit is worth 1 and makes the snake one cell longer. The game ends on a wall, on the tail, after `PATIENCE` steps
without a fruit, or when the snake fills the board. The last cell of the tail moves away in the same step, so the head
may follow it.

A frame is uint8 [SIDE, SIDE]: 0 is free, `FRUIT` the fruit, `HEAD` the head; any other number is a cell of the tail,
and says after how many steps without a fruit it will be free. So one frame holds all there is to know but the hunger.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELLS", "FRUIT", "HEAD", "MOVES", "PATIENCE", "SIDE", "START", "WALL", "Actions", "Frames", "Hunger"]

Frames = NDArray[np.uint8]
Actions = NDArray[np.integer[Any]]
Hunger = NDArray[np.uint8]
"""Steps since the last fruit."""

SIDE: Final = 10
CELLS: Final = SIDE * SIDE
FRUIT: Final = 255
HEAD: Final = 254
WALL: Final = 253
"""What stands for a wall where a board is shown with its walls; no tail is so long."""
PATIENCE: Final = 100

MOVES: Final = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""What action 0, 1, 2, 3 adds to the head's row and column: up, right, down, left."""

START: Final = ((5, 5), (5, 4), (5, 3))
"""The snake at the start, head first."""
