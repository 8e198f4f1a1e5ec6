"""The learning curve of a run as a picture. Matplotlib is imported when it is drawn: actors never draw one."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["draw_curve"]


def draw_curve(
    path: Path, points: tuple[Sequence[float], Sequence[float]], titles: tuple[str, str], labels: tuple[str, str]
) -> None:
    """Write the curve through `points`, x and y, y from 0 on, as a PNG of 960 x 540 pixels; there may be none.

    `titles`: at the left and, smaller, at the right; `labels`: of the two axes. Raises ImportError without Matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    xs, ys = points
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.fill_between(xs, ys, color="#5ed085", alpha=0.18, linewidth=0)
    axes.plot(xs, ys, color="#1f8a5b", linewidth=2)
    axes.set_title(titles[0], loc="left")
    axes.set_title(titles[1], loc="right", fontsize="medium", color="#4a5565")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_xlim(0, max(xs[-1], 1 / 60) if xs else 1)
    axes.set_ylim(0, max(1.0, 1.1 * max(ys, default=0)))
    axes.grid(color="#d8dee6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, format="png")
    temporary.replace(path)
