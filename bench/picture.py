"""One picture of all goals, on a logarithmic scale: how many times better than its peer each is, and should be."""

from pathlib import Path

from bench.results import Results, verdict

__all__ = ["draw"]

_HEIGHT_OF_BAR = 0.34
_MET, _MISSED, _LEVEL = "#2e7d5b", "#c0563b", "#444444"


def draw(results: Results, path: Path) -> None:
    """Write the picture as PNG; without matplotlib, or without figures, there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    verdicts = [(goal, verdict(goal, section)) for section in results.sections for goal in section.goals]
    bars = [
        (f"{goal.row}\nthan {goal.than}", told.got, told.wanted or 1.0)
        for goal, told in verdicts
        if told.got and told.got < float("inf")
    ]
    if not bars:
        return
    figure = Figure(figsize=(9, 1 + 2 * _HEIGHT_OF_BAR * len(bars)), layout="constrained")
    axes = figure.subplots()
    for row, (_, got, wanted) in enumerate(bars):
        axes.barh(row, got - 1, height=0.7, left=1, color=_MET if got >= wanted else _MISSED)
        axes.plot([wanted, wanted], [row - 0.42, row + 0.42], color="black", linewidth=2)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color=_LEVEL, linewidth=0.8, linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("times better than the peer; black: wanted")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
