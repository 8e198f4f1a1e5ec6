"""The two pictures that a run leaves: the curve of its scores (PNG) and one game (GIF).

Matplotlib and Pillow are imported when a picture is drawn: actors never draw one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from workloads.snake.drawing import BACKGROUND, as_image
from workloads.snake.record import Row
from workloads.snake.rules import HEAD, START, Frames

__all__ = ["save_curve", "save_game"]

_CELL: Final = 20
_CAPTION: Final = 24
_MILLISECONDS: Final = 70
_PAUSE: Final = 1500


def save_game(frames: Sequence[Frames], path: Path) -> None:
    """Write a game, its frames first to last, as a GIF that runs for ever, with the score above the board."""
    from PIL import Image, ImageDraw

    pictures = []
    for frame in frames:
        board = Image.fromarray(as_image(frame, _CELL))
        picture = Image.new("RGB", (board.width, board.height + _CAPTION), BACKGROUND)
        picture.paste(board, (0, _CAPTION))
        score = int(((frame > 0) & (frame <= HEAD)).sum()) - len(START)
        ImageDraw.Draw(picture).text((8, 6), f"Snake   {score} fruits", fill=(220, 226, 235))
        pictures.append(picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64))
    durations = [_MILLISECONDS] * (len(pictures) - 1) + [_PAUSE]
    temporary = path.with_name(f".{path.name}")
    pictures[0].save(temporary, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    temporary.replace(path)


def save_curve(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw the lines of scores.csv as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    minutes = np.array([row[0] for row in rows]) / 60
    scores = np.array([row[3] for row in rows])
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.fill_between(minutes, scores, color="#5ed085", alpha=0.18, linewidth=0)
    axes.plot(minutes, scores, color="#1f8a5b", linewidth=2)
    axes.set_title(title, loc="left")
    axes.set(xlabel="minutes of training", ylabel="mean score (fruits per game)")
    axes.set_xlim(0, max(float(minutes[-1]), 1 / 60) if rows else 1)
    axes.set_ylim(0, max(1.0, 1.1 * float(scores.max(initial=0))))
    axes.grid(color="#d8dee6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if rows:
        last = f"{scores[-1]:.1f} fruits after {rows[-1][1] / 1e6:.2f} million steps"
        axes.set_title(last, loc="right", fontsize="medium", color="#4a5565")
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, format="png")
    temporary.replace(path)
