"""One picture of the queue: how long jobs wait, beside peers, and what the bound on a head's delay costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.queue_trace.results import Found, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_OURS, _PEER = "#2e7d5b", "#9a9a9a"
_DEFAULT_DAYS: Final = 2.0
_BOUNDS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 1000.0)
_COLOURS: Final = {"spread 0.5": "#1b5e42", "spread 1": "#2e7d5b", "spread 1.5": "#7fb69c", "shapes": "#c08a3b"}


def draw(found: Found, path: Path) -> None:
    """Write the picture as PNG; without matplotlib, or without figures, there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    if not found.get("queue"):
        return
    frontier = [row for row in found.get("frontier", ()) if row.of["devices"] == 8]  # noqa: PLR2004 (the small host)
    figure = Figure(figsize=(13, 6) if frontier else (9, 6), layout="constrained")
    left, *right = figure.subplots(1, 2 if frontier else 1, squeeze=False, width_ratios=(3, 2) if frontier else None)[0]
    _draw_waits(left, [row for row in found["queue"] if row.of["devices"] == 8])  # noqa: PLR2004
    for axes in right:
        _draw_frontier(axes, frontier)
    figure.savefig(path, dpi=110)


def _draw_waits(axes: "Axes", rows: list[Measured]) -> None:
    """Draw those of most seeds: means of others cannot be compared with theirs."""
    most = max(len(row.seeds) for row in rows)
    rows = [row for row in rows if len(row.seeds) == most]
    names = list(dict.fromkeys(str(row.of["queue"]) for row in rows))
    for place, name in enumerate(names):
        for row in rows:
            if row.of["queue"] == name:
                busier = float(row.of["load"]) > 1
                mean, half = row.mean("mean wait h") or 0.0, row.half_width("mean wait h")
                where = place + (0.2 if busier else -0.2)
                colour = _OURS if name.startswith("gpusched") else _PEER
                axes.barh(where, mean, height=0.38, xerr=half, color=colour, alpha=0.55 if busier else 1, capsize=2)
                axes.text(mean + half, where, f" {mean:.1f}", va="center", fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("mean wait on 8 GPUs, hours (dark: 90 % load, light: 110 %)")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_frontier(axes: "Axes", rows: Sequence[Measured]) -> None:
    for people, colour in _COLOURS.items():
        for load, style in ((0.9, "-"), (1.1, "--")):
            points = sorted(
                (_BOUNDS.index(_days(row)), row.mean("mean wait h") or 0.0)
                for row in rows
                if row.of["load"] == load and str(row.of["queue"]).startswith(f"{people},")
            )
            name = people if load < 1 else None
            axes.plot([x for x, _ in points], [y for _, y in points], style, marker="o", color=colour, label=name)
    axes.axvline(_BOUNDS.index(_DEFAULT_DAYS), color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(_BOUNDS)), [_bound(days) for days in _BOUNDS], fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bound on a head's delay on 8 GPUs, days\n(solid: 90 % load, dashed: 110 %)")
    axes.set_ylabel("mean wait, hours")
    if rows:
        axes.legend(fontsize=8, title="people repeat commands")
    axes.spines[["top", "right"]].set_visible(False)


def _days(row: Measured) -> float:
    return float(str(row.of["queue"]).rpartition("most_delay ")[2].removesuffix("d"))


def _bound(days: float) -> str:
    if days == max(_BOUNDS):
        return "no bound"
    return f"{days:g}, default" if days == _DEFAULT_DAYS else f"{days:g}"
