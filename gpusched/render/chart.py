"""A curve drawn with characters: braille dots where the terminal can show them, asterisks elsewhere."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = ["Curve", "draw_chart"]

_LABEL: Final = 8
_MOST_POINTS: Final = 4096
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # Unicode, Braille Patterns: [row][column]


class Curve:
    """A curve that grows for as long as a job runs, and takes no more memory or time after a week than after an hour.

    `points` are (x, y) in the order of adding, from the first on and evenly taken: every one, then every second, ...
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._added, self._stride = 0, 1

    def add(self, x: float, y: float) -> None:
        """Add a point; both must be finite. At most 4096 are kept."""
        if self._added % self._stride == 0:
            if len(self.points) == _MOST_POINTS:
                self.points, self._stride = self.points[::2], self._stride * 2
            self.points.append((x, y))
        self._added += 1


def draw_chart(points: Sequence[tuple[float, float]], width: int, height: int, *, unicode: bool) -> list[str]:
    """Return `height` lines of at most `width` characters that show y over x, with the y range at the left.

    `points` are (x, y), all finite, in any order; without points the lines show an empty frame.
    """
    columns = max(width - _LABEL - 2, 8)
    wide, tall = (2, 4) if unicode else (1, 1)
    low, high = _bounds([y for _, y in points])
    cells = [[0] * columns for _ in range(height)]
    before = None
    for x, level in _levels(points, columns * wide):
        y = round((high - level) / (high - low) * (height * tall - 1))
        for dot in _upright(before, y):
            cells[dot // tall][x // wide] |= _DOTS[dot % tall][x % wide]
        before = y
    lines = []
    for row, line in enumerate(cells):
        label = f"{high:.2f}" if row == 0 else f"{low:.2f}" if row == height - 1 else ""
        drawn = "".join(chr(0x2800 + dots) if unicode else "*" if dots else " " for dots in line)
        lines.append(f"{label:>{_LABEL}} {'┤' if unicode else '|'}{drawn}")
    return lines


def _upright(before: int | None, y: int) -> range:
    """Return the rows of dots that join `y` to the column before it, so that a steep curve has no holes."""
    if before is None or abs(before - y) <= 1:
        return range(y, y + 1)
    return range(y, before) if y < before else range(before + 1, y + 1)


def _bounds(levels: Sequence[float]) -> tuple[float, float]:
    low, high = (min(levels), max(levels)) if levels else (0.0, 1.0)
    low = min(low, 0.0) if low < high / 2 else low  # a curve that starts near nothing is seen from zero
    return (low, high) if high > low else (low, low + 1.0)


def _levels(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[int, float]]:
    """Return one (column, y) for each column of dots between the first and the last point, straight lines in gaps."""
    if not points:
        return []
    points = sorted(points)
    first, last = points[0][0], points[-1][0]
    span = (last - first) or 1.0
    found: dict[int, list[float]] = {}
    for x, y in points:
        found.setdefault(int((x - first) / span * (columns - 1)), []).append(y)
    means = [(column, sum(levels) / len(levels)) for column, levels in sorted(found.items())]
    levels = [means[0]]
    for (start, low), (end, high) in pairwise(means):
        levels += [(at, low + (high - low) * (at - start) / (end - start)) for at in range(start + 1, end + 1)]
    return levels
