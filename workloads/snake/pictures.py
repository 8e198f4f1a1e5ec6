"""The two pictures that a run leaves: the curve of its scores (PNG) and one game (GIF).

Pillow is imported when a picture is drawn: actors never draw one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workloads.common.curve import draw_curve
from workloads.common.record import Row
from workloads.snake.drawing import BACKGROUND, COLOURS, TEXT, as_image
from workloads.snake.rules import HEAD, START, Frames

__all__ = ["save_curve", "save_game"]

_CELL: Final = 20
_CAPTION: Final = 24
_MILLISECONDS: Final = 70
_PAUSE: Final = 1500
_MOST_SHOWN: Final = 240


def save_game(frames: Sequence[Frames], path: Path, inputs: str) -> None:
    """Write a game, its frames first to last, as a GIF that runs for ever; above the board, score and inputs.

    A long game is shown in a quarter of a minute: of every few steps one, and the last.
    """
    from PIL import Image, ImageDraw

    pictures, every = [], -(-len(frames) // _MOST_SHOWN)
    pace = f", 1 of {every} steps" if every > 1 else ""
    colours = Image.new("P", (1, 1))
    colours.putpalette(COLOURS.tobytes())
    for frame in [*frames[:-1:every], frames[-1]]:
        board = Image.fromarray(as_image(frame, _CELL))
        picture = Image.new("RGB", (board.width, board.height + _CAPTION), BACKGROUND)
        picture.paste(board, (0, _CAPTION))
        score = int(((frame > 0) & (frame <= HEAD)).sum()) - len(START)
        ImageDraw.Draw(picture).text((8, 6), f"{score} fruits, inputs {inputs}{pace}", fill=TEXT)
        pictures.append(picture.quantize(palette=colours, dither=Image.Dither.NONE))
    durations = [_MILLISECONDS] * (len(pictures) - 1) + [_PAUSE]
    temporary = path.with_name(f".{path.name}")
    pictures[0].save(temporary, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    temporary.replace(path)


def save_curve(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw the lines of scores.csv as a PNG."""
    minutes, scores = [row[0] / 60 for row in rows], [row[3] for row in rows]
    told = f"{scores[-1]:.1f} fruits after {rows[-1][1] / 1e6:.2f} million steps" if rows else ""
    draw_curve(path, (minutes, scores), (title, told), ("minutes of training", "mean score (fruits per game)"))
