"""One picture of all goals: one row a claim, how many times its goal it reaches, and the machine's limit."""

from pathlib import Path
from typing import NamedTuple

from bench.results import Results, SectionResult, times_better, verdict
from bench.section import Goal

__all__ = ["draw"]

_HEIGHT_OF_BAR = 0.26
_MET, _MISSED, _LIMIT = "#2e7d5b", "#c0563b", "#1f5fa8"


class _Bar(NamedTuple):
    """A claim. `reached`: 1 is just its goal, 2 twice as good; `limit`: what the machine can do at most, alike."""

    claim: str
    reached: float
    words: str
    limit: float | None


def draw(results: Results, path: Path) -> None:
    """Write the picture as PNG; without matplotlib, or without figures, there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    bars = [bar for section in results.sections for goal in section.goals if (bar := _bar(goal, section))]
    if not bars:
        return
    figure = Figure(figsize=(12, 1 + _HEIGHT_OF_BAR * len(bars)), layout="constrained")
    axes = figure.subplots()
    for row, bar in enumerate(bars):
        axes.barh(row, bar.reached - 1, height=0.7, left=1, color=_MET if bar.reached >= 1 else _MISSED)
        colour, right = "black" if bar.reached >= 1 else _MISSED, axes.get_yaxis_transform()
        axes.text(1.01, row, bar.words, transform=right, color=colour, va="center", fontsize=8)
        if bar.limit is not None:
            axes.plot(bar.limit, row, marker="d", color=_LIMIT, markersize=6)
    axes.set_yticks(range(len(bars)), [bar.claim for bar in bars], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1.2)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlabel("times as good as the goal (the line); blue: what the machine can do at most")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _bar(goal: Goal, section: SectionResult) -> _Bar | None:
    """Return the bar of a goal; None where it was not measured."""
    figure, than, told = section.figures[goal.figure], section.row(goal.than or ""), verdict(goal, section)
    mine = next((row.median(goal.figure) for row in section.rows if row.name == goal.row), None)
    goals = goal.bound if goal.than is None else than.median(goal.figure) if than else None
    if mine is None or goals is None or told.state == "not measured":
        return None
    claim, words = f"{section.name}: {goal.text}", told.words.partition(": ")[2]
    if not mine or not goals:  # nothing lost, where nothing was to be lost
        return _Bar(claim, float(told.state == "met"), words, None)
    over_tcp = "tcp" in goal.row  # what memory can do is no limit of a network
    limits = [
        row.median(goal.figure) for row in section.rows if row.kind == "limit" and ("tcp" in row.name) == over_tcp
    ]
    best = [times_better(figure, limit, goals) / goal.times for limit in limits if limit]
    return _Bar(claim, times_better(figure, mine, goals) / goal.times, words, max(best, default=None))
