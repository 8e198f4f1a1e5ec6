"""Draw a job while it runs: its replicas, its progress, its curve. It reads values and must not know where they lie."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec
from rich.console import Group, JustifyMethod, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaState, ReplicaStatus, exit_text
from gpusched.render.chart import draw_chart
from gpusched.render.job_format import decimal, network_lines, percent, ready_text, span, whole
from gpusched.render.text import printable

__all__ = ["Scene", "draw_job"]

_COLOURS: Final[dict[str, str]] = {
    "ready": "green",
    ReplicaState.RUNNING: "green",
    ReplicaState.STARTING: "cyan",
    ReplicaState.BACKOFF: "yellow",
    ReplicaState.STOPPING: "magenta",
    ReplicaState.FAILED: "red",
}
_MOST_ROWS: Final = 12
_MOST_HOSTS: Final = 4
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
    hosts = network_lines(scene.job, _MOST_HOSTS)
    parts += [Text(line, style="cyan", no_wrap=True, overflow="ellipsis") for line in hosts]
    if scene.frame:
        game = Panel(Text(scene.frame.rstrip("\n")), title="game", expand=False, border_style="dim")
        grid = Table.grid(padding=(0, 1))
        grid.add_row(game, _curve(scene, max(width - 30, 30), max(curve_height, scene.frame.count("\n") - 1)))
        parts.append(grid)
    elif scene.points:
        parts.append(_curve(scene, width, curve_height))
    room = max(3, min(_MOST_ROWS, height - curve_height - 9 - len(hosts)))
    parts += [_replicas(scene, room), Text(scene.note, style="dim")]
    return Group(*parts)


def _headline(scene: Scene) -> Text:
    job = scene.job
    text = Text()
    text.append(job.id, style="bold")
    text.append(f"  {job.state}", style="green" if job.state == "running" else "yellow")
    text.append(f"  {span((job.ended or scene.now) - job.created)}")
    text.append(f"  {_processes(job)}")
    if job.counts:
        text.append(f" on {len(job.counts)} devices {list(job.counts)}")
    if job.simulated:
        text.append(f"  {job.machine} (simulated)", style="bold yellow")
    return text


def _processes(job: JobStatus) -> str:
    every = len(job.replicas)
    if job.state in JOB_TERMINAL:
        return f"{every} processes"
    return (
        ready_text(job)
        or f"{sum(replica.state is ReplicaState.RUNNING for replica in job.replicas)} of {every} processes running"
    )


def _numbers(scene: Scene) -> Text:
    latest, job = scene.latest, scene.job
    if not latest:
        dots = "…" if scene.unicode else "..."
        if job.note:
            return Text(f"{printable(job.note)} {dots}", style="cyan")
        if job.joins is not None:
            return Text("")
        return Text(f"waiting for the first report of the leader {dots}", style="dim")
    text = Text()
    for label, value in (
        ("steps", whole(latest.get("step"))),
        ("steps/s", whole(latest.get("steps_per_s"))),
        ("score", decimal(latest.get("score"))),
    ):
        text.append(f"{label} ", style="dim")
        text.append(f"{value}   ", style="bold")
    if done := percent(latest.get("done")):
        text.append(f"{done}   ", style="bold")
    if latest.get("note"):
        text.append(printable(str(latest["note"])), style="dim")
    return text


def _curve(scene: Scene, width: int, height: int) -> Text:
    lines = draw_chart(scene.points, width, height, unicode=scene.unicode)
    times = [time for time, _ in scene.points]
    seconds = max(times) - min(times) if times else 0.0
    lines.append(f"{'score':>8}  {'0s':<{max(width - 24, 1)}}{span(seconds):>10}")
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
    """Return those that a person wants to see: not running, restarted, and the first of each role; in their order."""
    ranked = sorted(
        rows, key=lambda row: (row.state is ReplicaState.RUNNING, -row.restarts, int(row.name.split(".")[-1]))
    )
    chosen = {row.name for row in ranked[:room]}
    return [row for row in rows if row.name in chosen]


def _tally(rows: Sequence[ReplicaStatus]) -> str:
    states = sorted(_state(row) for row in rows)
    return ", ".join(f"{len(list(group))} {state}" for state, group in groupby(states))


def _state(replica: ReplicaStatus) -> str:
    """Return `ready` for one that has begun its work, as long as it runs; a program that never reports is running."""
    return "ready" if replica.ready is not None and replica.state is ReplicaState.RUNNING else str(replica.state)


def _row(scene: Scene, replica: ReplicaStatus, numbers: object, *, on_devices: bool) -> list[RenderableType]:
    report: Mapping[str, object] = numbers if isinstance(numbers, Mapping) else {}
    state = Text(_state(replica), style=_COLOURS.get(_state(replica), ""))
    if replica.state is ReplicaState.BACKOFF and replica.retry_at is not None:
        state.append(f" {max(replica.retry_at - scene.now, 0):.0f}s", style="dim")
    device = "-"
    if replica.device_index is not None:
        indices = (replica.device_index, *(share.device_index for share in replica.further))
        device = f"GPU {', '.join(map(str, indices))}" + (" (simulated)" if scene.job.simulated else "")
    return [
        replica.name,
        state,
        str(replica.pid or "-"),
        *((device, f"{replica.limit_mib} MiB" if replica.limit_mib else "-") if on_devices else ()),
        whole(report.get("steps_per_s")),
        decimal(report.get("score")),
        str(replica.restarts),
        Text(printable(exit_text(replica.exit)) if replica.exit else ""),  # no markup: it may hold a path with [ in it
    ]
