"""The end of a soak: a table of what was done and checked, what was lost, what grew; a plot; one exit code."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.soak.growth import QUANTITIES, Verdict, judge
from tests.soak.journal import Journal
from tests.soak.measure import Sample

__all__ = ["plot", "report"]

NOTHING: Final = float("nan")  # there was no such process: a gap in the line


def report(journal: Journal, samples: Sequence[Sample], slowest: dict[str, float], title: str) -> tuple[str, bool]:
    """Return the report as Markdown, and whether everything held."""
    verdicts = [judge(quantity, samples) for quantity in QUANTITIES]
    minutes = (time.monotonic() - journal.begun) / 60
    kept = samples[-1].kept_jobs if samples else 0
    lines = [f"# {title}", "", f"{minutes:.1f} minutes, {kept} jobs kept, {sum(journal.checks.values())} checks.", ""]
    lines += _table("done", journal.done)
    lines += _table("checked from outside", journal.checks)
    lines += ["| slowest answer | seconds |", "|---|--:|"]
    lines += [f"| {label} | {seconds:.1f} |" for label, seconds in sorted(slowest.items())]
    lines += ["", *_growth(verdicts)]
    lines += [f"- note: {note}" for note in journal.notes]
    grown = [verdict.quantity.name for verdict in verdicts if verdict.grows]
    held = not journal.violations and not grown
    lines += ["", f"{len(journal.violations)} violations; what grew: {', '.join(grown) or 'nothing'}."]
    lines += [f"- {violation}" for violation in journal.violations]
    return "\n".join([*lines, ""]), held


def _table(title: str, counts: dict[str, int]) -> list[str]:
    rows = [f"| {name} | {count:,} |" for name, count in sorted(counts.items())]
    return [f"| {title} | times |", "|---|--:|", *rows, ""]


def _growth(verdicts: Sequence[Verdict]) -> list[str]:
    lines = [
        "| second half | begin | end | rise | tolerance | rising pairs | verdict |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for one in verdicts:
        quantity = one.quantity
        verdict = "GROWS" if one.grows else "holds" if one.judged else "too short to judge"
        rise = f"{one.rise:.2f} {quantity.unit}".strip()
        numbers = f"{one.begin:.0f} | {one.end:.0f} | {rise} | {quantity.tolerance:g} | {one.rising:.0%}"
        lines.append(f"| {quantity.name} | {numbers} | {verdict} |")
    return [*lines, ""]


def plot(samples: Sequence[Sample], journal: Journal, path: Path) -> None:
    """Draw the samples over time, with the kills of the daemon as gaps between its lives."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    minutes = [one.time / 60 for one in samples]
    figure, axes = plt.subplots(4, 1, figsize=(9, 10), sharex=True, layout="constrained")
    panels: tuple[tuple[str, dict[str, list[float]]], ...] = (
        ("memory, MiB", {
            "daemon, private pages": [one.daemon_private / 1024 or NOTHING for one in samples],
            "a supervisor or guard, mean of private pages": [one.steady_private / 1024 or NOTHING for one in samples]}),
        ("descriptors, threads", {
            "daemon: descriptors": [one.daemon_fds or NOTHING for one in samples],
            "daemon: threads": [one.daemon_threads or NOTHING for one in samples],
            "a supervisor or guard: descriptors, most": [one.steady_fds or NOTHING for one in samples]}),
        ("live jobs, files", {
            "live jobs": [one.live_jobs for one in samples],
            "files in the lease directory": [one.lease_files for one in samples],
            "files in the runtime directory": [one.runtime_files for one in samples]}),
        ("for each job kept", {
            "files in the state directory": [one.state_files / (one.kept_jobs or NOTHING) for one in samples],
            "database, KiB": [one.db_kib / (one.kept_jobs or NOTHING) for one in samples]}),
    )  # fmt: skip
    for axis, (title, series) in zip(axes, panels, strict=True):
        _panel(axis, minutes, title, series)
    axes[3].set_ylim(bottom=0, top=60)
    for window in journal.windows:
        if window.name in ("daemon", "reboot") and samples:
            axes[0].axvline((window.begin - journal.begun) / 60, color="0.85", linewidth=0.6, zorder=0)
    axes[-1].set_xlabel("minutes; grey: the daemon was killed, halted or restarted")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Any, minutes: list[float], title: str, series: dict[str, list[float]]) -> None:
    for label, values in series.items():
        axis.plot(minutes, values, label=label, linewidth=1)
    axis.set_ylabel(title)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, loc="upper left")
    axis.grid(alpha=0.3)
