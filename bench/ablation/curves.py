"""The curves of several runs as one picture: `python -m bench.ablation.curves [INPUTS SEED SCORES.csv]`.

A run that is named is added to docs/snake-hour.csv first, thinned to half a minute.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.fresh import ROOT

__all__: list[str] = []

_RUNS: Final = ROOT / "docs" / "snake-hour.csv"
_PICTURE: Final = ROOT / "docs" / "images" / "snake-hour.png"
_EVERY_S: Final = 30.0
_FULL: Final = 97
_COLOURS: Final = {"paths": "#1f8a5b", "frame": "#1f5fa8"}


class Point(NamedTuple):
    """How far a run was after some minutes: its mean score of the last 1,000 games, moves drawn from the policy."""

    inputs: str
    seed: str
    minutes: float
    steps: int
    score: float


def read() -> list[Point]:
    """Return the points of all runs, each in their order."""
    if not _RUNS.exists():
        return []
    with _RUNS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Point(row["inputs"], row["seed"], float(row["minutes"]), int(row["steps"]), float(row["score"])) for row in rows
    ]


def thinned(inputs: str, seed: str, scores: Path) -> list[Point]:
    """Return of each whole half minute of a run the mean score, at its end."""
    with scores.open(newline="") as file:
        rows = list(csv.DictReader(file))
    parts, whole = defaultdict[int, list[dict[str, str]]](list), int(float(rows[-1]["seconds"]) // _EVERY_S)
    for row in rows:
        parts[int(float(row["seconds"]) // _EVERY_S)].append(row)
    return [
        Point(
            inputs,
            seed,
            (number + 1) * _EVERY_S / 60,
            int(part[-1]["steps"]),
            round(sum(float(row["mean_score"]) for row in part) / len(part), 2),
        )
        for number, part in sorted(parts.items())
        if number < whole
    ]


def write(points: Sequence[Point]) -> None:
    """Write the points of all runs."""
    with _RUNS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Point._fields, *points])


def draw(points: Sequence[Point]) -> None:
    """Draw each kind of inputs: the mean of its runs, and between which scores they lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for inputs, colour in _COLOURS.items():
        at = _at(points, inputs)
        if not at:
            continue
        minutes = sorted(at)
        axes.fill_between(
            minutes, [min(at[x]) for x in minutes], [max(at[x]) for x in minutes], color=colour, alpha=0.25
        )
        runs = len({point.seed for point in points if point.inputs == inputs})
        label = f"--inputs {inputs}, {runs} seed{'' if runs == 1 else 's'}"
        axes.plot(minutes, [sum(at[x]) / len(at[x]) for x in minutes], color=colour, linewidth=1.8, label=label)
    axes.axhline(_FULL, color="#4a5565", linewidth=0.8, linestyle="--")
    axes.set(xlabel="minutes of training on two CPU cores", ylabel="mean score (fruits per game)", ylim=(0, 102))
    axes.set_xlim(0, max(point.minutes for point in points))
    axes.set_title("gpusched launch snake --procs 2 --minutes 60", loc="left")
    axes.set_title("dashed: a full board", loc="right", fontsize="medium", color="#4a5565")
    axes.grid(color="#d8dee6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(_PICTURE)


def _at(points: Sequence[Point], inputs: str) -> Mapping[float, list[float]]:
    found = defaultdict[float, list[float]](list)
    for point in points:
        if point.inputs == inputs:
            found[point.minutes].append(point.score)
    return found


def main() -> None:
    """Add a run, if one is named, and draw all."""
    points = read()
    if len(sys.argv) > 1:
        inputs, seed, scores = sys.argv[1:]
        others = [point for point in points if (point.inputs, point.seed) != (inputs, seed)]
        points = sorted([*others, *thinned(inputs, seed, Path(scores))])
        write(points)
    draw(points)


if __name__ == "__main__":
    main()
