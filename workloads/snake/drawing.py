"""A frame as text for a terminal and as an image. NumPy only: files are pictures.py's work."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.snake.rules import FRUIT, HEAD, SIDE, Frames

__all__ = ["BACKGROUND", "COLOURS", "TEXT", "as_image", "as_text"]

BACKGROUND: Final = (18, 22, 30)
TEXT: Final = (220, 226, 235)
_FREE: Final = (28, 34, 45)
_FRUIT: Final = (240, 85, 75)
_HEAD: Final = (255, 214, 90)
_NECK: Final = np.array((94, 208, 133), np.float32)
_TIP: Final = np.array((34, 94, 84), np.float32)
_SHADES: Final = np.linspace(0, 1, 24, dtype=np.float32)[:, None]

COLOURS: Final = np.vstack([[BACKGROUND, TEXT, _FREE, _FRUIT, _HEAD], _TIP + (_NECK - _TIP) * _SHADES]).astype(np.uint8)
"""Those of the images [n, 3]; of the tail's shades 24."""


def as_text(frame: Frames) -> str:
    """Return a frame as 12 lines of 22 columns: a box, `██` the head, `▓▓` the tail (its tip `░░`), `()` the fruit."""
    signs = {0: "  ", 1: "░░", HEAD: "██", FRUIT: "()"}
    rows = ("".join(signs.get(int(cell), "▓▓") for cell in row) for row in frame)
    return "\n".join(["┌" + "─" * 2 * SIDE + "┐", *(f"│{row}│" for row in rows), "└" + "─" * 2 * SIDE + "┘"])


def as_image(frame: Frames, cell: int = 24) -> NDArray[np.uint8]:
    """Return a frame as RGB, uint8 [10 x cell, 10 x cell, 3], with a gap of one pixel round every cell."""
    colours = np.empty((*frame.shape, 3), np.uint8)
    colours[:] = _FREE
    tail = (frame > 0) & (frame < HEAD)
    nearness = (frame[tail] / max(1, int(frame[tail].max(initial=1))))[:, None]
    colours[tail] = (_TIP + (_NECK - _TIP) * nearness).astype(np.uint8)
    colours[frame == HEAD] = _HEAD
    colours[frame == FRUIT] = _FRUIT
    image = colours.repeat(cell, axis=0).repeat(cell, axis=1)
    for edge in (0, cell - 1):
        image[edge::cell] = BACKGROUND
        image[:, edge::cell] = BACKGROUND
    return image
