"""Draw a job while it runs: its replicas, its progress, its curve. It reads values and must not know where they lie."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec
from rich.console import Group, JustifyMethod, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpusched.cli.chart import draw_chart
from gpusched.cli.text import printable
from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaState, ReplicaStatus
from gpusched.supervisor.restart import exit_text

__all__ = ["Scene", "draw_job", "format_duration", "number", "plain_progress"]

_COLOURS: Final = {
    ReplicaState.RUNNING: "green",
    ReplicaState.STARTING: "cyan",
    ReplicaState.BACKOFF: "yellow",
    ReplicaState.STOPPING: "magenta",
    ReplicaState.FAILED: "red",
}
_MOST_ROWS: Final = 12
_NUMBERS: Final = ("steps/s", "score", "restarts")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a job. `latest` is the leader's last report; `points` are Unix times and scores, all finite.

    `frame` is a game drawn as text, or empty.
    """

    job: JobStatus
    latest: Mapping[str, object]
    points: Sequence[tuple[float, float]]
    now: float
    frame: str = ""
    note: str = ""
    unicode: bool = True


def draw_job(scene: Scene, width: int, height: int) -> RenderableType:
    """Return the whole view of a job for a terminal of that size, in characters."""
    curve_height = max(3, min(9, height // 4))
    parts: list[RenderableType] = [_headline(scene), _numbers(scene)]
    curve = _curve(scene, width, curve_height)
    if scene.frame:
        game = Panel(Text(scene.frame.rstrip("\n")), title="game", expand=False, border_style="dim")
        grid = Table.grid(padding=(0, 1))
        grid.add_row(game, _curve(scene, max(width - 30, 30), max(curve_height, scene.frame.count("\n") - 1)))
        parts.append(grid)
    elif scene.latest:
        parts.append(curve)
    room = max(3, min(_MOST_ROWS, height - curve_height - 9))
    parts += [_replicas(scene, room), Text(scene.note, style="dim")]
    return Group(*parts)


def _headline(scene: Scene) -> Text:
    job = scene.job
    alive = sum(replica.state is ReplicaState.RUNNING for replica in job.replicas)
    text = Text()
    text.append(job.id, style="bold")
    text.append(f"  {job.state}", style="green" if job.state == "running" else "yellow")
    text.append(f"  {format_duration((job.ended or scene.now) - job.created)}")
    processes = f"{len(job.replicas)} processes"
    text.append(f"  {processes}" if job.state in JOB_TERMINAL else f"  {alive} of {processes} running")
    if job.counts:
        text.append(f" on {len(job.counts)} devices {list(job.counts)}")
    if job.simulated:
        text.append(f"  {job.machine} (simulated)", style="bold yellow")
    return text


def _numbers(scene: Scene) -> Text:
    latest = scene.latest
    if not latest:
        return Text("waiting for the first report of the leader …" if scene.unicode else "waiting ...", style="dim")
    text = Text()
    for label, value in (
        ("steps", _whole(latest.get("step"))),
        ("steps/s", _whole(latest.get("steps_per_s"))),
        ("score", _decimal(latest.get("score"))),
    ):
        text.append(f"{label} ", style="dim")
        text.append(f"{value}   ", style="bold")
    if latest.get("note"):
        text.append(printable(str(latest["note"])), style="dim")
    return text


def _curve(scene: Scene, width: int, height: int) -> Text:
    lines = draw_chart(scene.points, width, height, unicode=scene.unicode)
    times = [time for time, _ in scene.points]
    span = max(times) - min(times) if times else 0.0
    lines.append(f"{'score':>8}  {'0s':<{max(width - 24, 1)}}{format_duration(span):>10}")
    return Text("\n".join(lines), style="cyan")


def _replicas(scene: Scene, room: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    on_devices = any(replica.device_uuid for replica in scene.job.replicas)
    titles = ("replica", "state", "pid", *(("device", "limit") if on_devices else ()), *_NUMBERS, "last end")
    for title in titles:
        justify: JustifyMethod = "right" if title in ("pid", "limit", *_NUMBERS) else "left"
        table.add_column(title, justify=justify, no_wrap=True)
    reported = scene.latest.get("replicas")
    numbers: Mapping[str, object] = reported if isinstance(reported, Mapping) else {}
    rows = list(scene.job.replicas)
    shown = rows if len(rows) <= room else _most_interesting(rows, room - 1)
    for replica in shown:
        table.add_row(*_row(scene, replica, numbers.get(replica.name), on_devices=on_devices))
    if len(shown) < len(rows):
        hidden = [replica for replica in rows if replica not in shown]
        table.add_row(f"+ {len(hidden)} more", Text(_tally(hidden)))
    return table


def _most_interesting(rows: Sequence[ReplicaStatus], room: int) -> list[ReplicaStatus]:
    """Return those that a person would look for: not running, restarted, and the first of each role; in their order."""
    ranked = sorted(
        rows, key=lambda row: (row.state is ReplicaState.RUNNING, -row.restarts, int(row.name.split(".")[-1]))
    )
    chosen = {row.name for row in ranked[:room]}
    return [row for row in rows if row.name in chosen]


def _tally(rows: Sequence[ReplicaStatus]) -> str:
    states = sorted(str(row.state) for row in rows)
    return ", ".join(f"{len(list(group))} {state}" for state, group in groupby(states))


def _row(scene: Scene, replica: ReplicaStatus, numbers: object, *, on_devices: bool) -> list[RenderableType]:
    told: Mapping[str, object] = numbers if isinstance(numbers, Mapping) else {}
    state = Text(str(replica.state), style=_COLOURS.get(replica.state, ""))
    if replica.state is ReplicaState.BACKOFF and replica.retry_at is not None:
        state.append(f" {max(replica.retry_at - scene.now, 0):.0f}s", style="dim")
    device = "-"
    if replica.device_index is not None:
        device = f"GPU {replica.device_index}" + (" (simulated)" if scene.job.simulated else "")
    return [
        replica.name,
        state,
        str(replica.pid or "-"),
        *((device, f"{replica.limit_mib} MiB" if replica.limit_mib else "-") if on_devices else ()),
        _whole(told.get("steps_per_s")),
        _decimal(told.get("score")),
        str(replica.restarts),
        Text(printable(exit_text(replica.exit)) if replica.exit else ""),  # no markup: it may hold a path with [ in it
    ]


def plain_progress(report: Mapping[str, object]) -> str:
    """Return one report of the leader as a line of text, without what it does not tell."""
    told = [
        f"step {_whole(report['step'])}" if report.get("step") is not None else "",
        f"{_whole(report['steps_per_s'])} steps/s" if report.get("steps_per_s") is not None else "",
        f"score {_decimal(report['score'])}" if report.get("score") is not None else "",
        printable(str(report.get("note") or "")),
    ]
    return "  ".join(part for part in told if part)


def format_duration(seconds: float) -> str:
    """Return a duration for people: `42s`, `3m 07s`, `2h 05m`."""
    whole = max(int(seconds), 0)
    if whole < 60:  # noqa: PLR2004 (seconds in a minute)
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m {rest:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"  # noqa: PLR2004


def number(value: object) -> float | None:
    """Return a reported value as a finite number, or None if it is none."""
    try:
        found = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # an int of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def _whole(value: object) -> str:
    return "-" if (found := number(value)) is None else f"{found:,.0f}"


def _decimal(value: object) -> str:
    return "-" if (found := number(value)) is None else f"{found:.2f}"
