"""Texts for jobs, in one line: how one ended or why it waits, how long it took, what its leader reports.

Plain text, and no rich: it is slow.
"""

import math
import shlex
from collections.abc import Mapping
from typing import Final

from gpusched.model.status import (
    JOB_TERMINAL,
    ArrayStatus,
    ExitReason,
    JobState,
    JobStatus,
    JoinedHost,
    ReplicaState,
    ReplicaStatus,
    fault_of,
    is_idle_end,
    is_out_of_time,
    ran_s,
    signal_name,
)
from gpusched.render.text import printable
from gpusched.units import format_seconds

__all__ = [
    "array_text",
    "bar",
    "decimal",
    "end_line",
    "host_text",
    "idle_mark",
    "members_text",
    "memory_text",
    "network_lines",
    "network_text",
    "number",
    "percent",
    "plain_progress",
    "ready_count",
    "ready_text",
    "span",
    "state_text",
    "time_run",
    "what",
    "whole",
]

_MINUTE: Final = 60
_HOUR: Final = 3600
_GIB: Final = 1024
_MOST_NAMED: Final = 3
_BAR: Final = 10
_SMALL: Final = 0.1


def what(job: JobStatus) -> str:
    """Return the command line of a command, else the workload, and what it has to do with other hosts."""
    if job.command:
        return printable(shlex.join(job.command))
    place = network_text(job) if job.engine is None else f"on {job.engine}"
    return f"{job.workload}, {place}" if place else job.workload


def state_text(job: JobStatus) -> str:
    """Return the state, with what a person asks next: `held`, `failed: code 3`, `failed: out of memory`."""
    if job.state is JobState.QUEUED and job.held:
        return "held"
    if job.state is JobState.FAILED:
        fault = fault_of(job)
        if fault is not None:
            return f"failed: {_short(fault)}"
        if is_idle_end(job):
            return "failed: idle"
        return "failed: time limit" if is_out_of_time(job) else "failed"
    if job.state is JobState.RUNNING and 0 < (ready := ready_count(job)) < len(job.replicas):
        return f"running, {ready} ready"
    return str(job.state)


def idle_mark(job: JobStatus, now: float) -> str:
    """Return `, idle 42m` for a job whose devices do nothing, to stand behind its state; empty for another one."""
    if job.idle_since is None or job.state in JOB_TERMINAL:
        return ""
    seconds = max(0.0, now - job.idle_since)
    return f", idle {int(seconds) // _MINUTE}m" if _MINUTE <= seconds < _HOUR else f", idle {span(seconds)}"


def array_text(array: ArrayStatus) -> str:
    """Return how far an array is: `[####......] 412/1000, 16 run, 3 failed`."""
    return f"{bar(array.ended / max(1, array.count))} {array.ended}/{array.count}{_others(array)}"


def members_text(array: ArrayStatus) -> str:
    """Return the same without a bar: `412 of 1000 ended, 16 run, 3 failed`."""
    return f"{array.ended} of {array.count} ended{_others(array)}"


def _others(array: ArrayStatus) -> str:
    counts = {"run": array.live, "failed": array.failed, "lost": array.lost, "cancelled": array.cancelled}
    return "".join(f", {count} {name}" for name, count in counts.items() if count)


def bar(part: float) -> str:
    """Return how far something is, `part` being 1 in the end: `[####......]`."""
    return f"[{'#' * int(_BAR * min(1.0, part)):.<{_BAR}}]"


def ready_count(job: JobStatus) -> int:
    """Return how many replicas have begun their work; 0 also for a workload whose programs never report that."""
    return sum(one.ready is not None for one in job.replicas)


def ready_text(job: JobStatus) -> str:
    """Return `12 of 33 ready`, in the end `all 33 processes ready after 7.2 s`; empty until one has reported it."""
    ready = [one.ready for one in job.replicas if one.ready is not None]
    if not ready:
        return ""
    if len(ready) < len(job.replicas):
        return f"{len(ready)} of {len(job.replicas)} ready"
    who = "the process is" if len(ready) == 1 else f"all {len(ready)} processes"
    if job.started is None or any(one.restarts for one in job.replicas):  # that would be the time of the latest restart
        return f"{who} ready"
    return f"{who} ready after {max(*ready, job.started) - job.started:.1f} s"


def network_text(job: JobStatus) -> str:
    """Return what a job has to do with other hosts: `joins snake-4 at tcp://lab1:5555 as lab2`; empty for nothing."""
    if job.joins is not None:
        verb = "joined" if job.state in JOB_TERMINAL else "joins"
        named = f" as {job.joins.host}" if job.joins.host else ""
        return printable(f"{verb} {job.joins.job} at {job.joins.endpoint}{named}")
    if job.listen is None:
        return ""
    if not job.joined:
        return f"listens at {job.listen}"
    count = sum(host.actors if job.state in JOB_TERMINAL else host.connected for host in job.joined)
    named = ", ".join(host.host for host in job.joined)
    hosts = named if len(job.joined) <= _MOST_NAMED else _count(len(job.joined), "host")
    return printable(f"and {_count(count, 'actor')} of {hosts}")


def host_text(host: JoinedHost, *, over: bool) -> str:
    """Return what a host that joined does: `lab2 (10.0.0.2): 4 of 4 actors, 120 batches, 3.4 MiB`; `over`: did."""
    where = f" ({host.address})" if host.address else ""
    if not host.actors:
        return printable(f"{host.host}{where}: no actor of it has come{'' if over else ' yet'}")
    actors = _count(host.actors, "actor") if over else f"{host.connected} of {_count(host.actors, 'actor')}"
    return printable(f"{host.host}{where}: {actors}, {_count(host.batches, 'batch', 'es')}, {_data(host.bytes)}")


def network_lines(job: JobStatus, most: int = 10) -> list[str]:
    """Return what a job has to do with other hosts, a line for each that it is on or has joined, `most` at the most."""
    if job.engine is not None:
        return _node_lines(job, most)
    if job.joins is not None or (job.listen is not None and not job.joined and job.state not in JOB_TERMINAL):
        return [network_text(job)]
    present_first = sorted(job.joined, key=lambda host: not host.connected)
    lines = [host_text(host, over=job.state in JOB_TERMINAL) for host in present_first[:most]]
    left = len(job.joined) - most
    return [*lines, f"and {_count(left, 'more host')}"] if left > 0 else lines


def _node_lines(job: JobStatus, most: int) -> list[str]:
    """Return the cluster's message, if there is one, and a line for each node: `n2: 8 of 8 running, GPUs 0,1`."""
    by_node: dict[str, list[ReplicaStatus]] = {}
    for one in job.replicas:
        if one.node is not None:
            by_node.setdefault(one.node, []).append(one)
    lines = [printable(job.note)] if job.note else []
    for node, replicas in by_node.items():
        running = sum(one.state is ReplicaState.RUNNING for one in replicas)
        devices = sorted({one.device_index for one in replicas if one.device_index is not None})
        gpus = f", GPU{'s' if len(devices) > 1 else ''} {','.join(map(str, devices))}" if devices else ""
        many = (
            _count(len(replicas), "process", "es")
            if job.state in JOB_TERMINAL
            else f"{running} of {len(replicas)} running"
        )
        lines.append(printable(f"{node}: {many}{gpus}"))
    left = len(lines) - most
    return [*lines[:most], f"and {_count(left, 'more node')}"] if left > 0 else lines


def end_line(job: JobStatus) -> str:
    """Return how a job ended: `snake-4 succeeded after 3m07s`, `run-3 failed: code 3 after 12s: ...`."""
    seconds = None if job.ended is None else ran_s(job, job.ended)
    took = "" if seconds is None else f" after {span(seconds)}"
    message = f": {printable(job.message)}" if job.message and job.state is not JobState.SUCCEEDED else ""
    return f"{job.id} {state_text(job)}{took}{message}"


def time_run(job: JobStatus, now: float) -> str:
    """Return for how long a job has run, or ran, since its last start; `-` if it did not, or none saw it."""
    seconds = ran_s(job, now)
    return "-" if seconds is None else span(seconds)


def span(seconds: float) -> str:
    """Return a span of time in whole seconds, in at most seven characters: `42s`, `3m07s`, `2h05m`, `3d04h`."""
    whole = max(int(seconds), 0)
    return f"{whole}s" if whole < _MINUTE else format_seconds(whole)


def plain_progress(report: Mapping[str, object]) -> str:
    """Return one report of the leader as a line of text, without the fields that it lacks."""
    parts = [
        f"step {whole(report['step'])}" if report.get("step") is not None else "",
        percent(report.get("done")),
        f"{whole(report['steps_per_s'])} steps/s" if report.get("steps_per_s") is not None else "",
        f"score {decimal(report['score'])}" if report.get("score") is not None else "",
        printable(str(report.get("note") or "")),
    ]
    return "  ".join(part for part in parts if part)


def percent(done: object) -> str:
    """Return the reported part of the work as `42 % done`, nothing if it is none."""
    part = number(done)
    return "" if part is None or not 0 <= part <= 1 else f"{100 * part:.0f} % done"


def number(value: object) -> float | None:
    """Return a reported value as a finite number, or None if it is none."""
    try:
        found = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # an int of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def whole(value: object) -> str:
    """Return a reported value as a whole number with commas, `-` if it is none."""
    return "-" if (found := number(value)) is None else f"{round(found):,}"


def decimal(value: object) -> str:
    """Return a reported value with two decimals, a small one with three digits that count, `-` if it is none."""
    if (found := number(value)) is None:
        return "-"
    return f"{found:.3g}" if 0 < abs(found) < _SMALL else f"{found + 0.0:.2f}"  # 0.0 for -0.0


def memory_text(mib: int | None) -> str:
    """Return an amount of memory, `-` if it is not known."""
    if mib is None:
        return "-"
    return f"{mib} MiB" if mib < _GIB else f"{mib / _GIB:.1f} GiB"


def _short(end: ExitReason) -> str:
    match end.kind:
        case "crashed":
            return f"code {end.code}"
        case "signalled":
            return signal_name(end.signal)
        case "oom":
            return "out of memory"
        case "spawn-failed":
            return "not started"
        case kind:
            return kind


def _count(number: int, one: str, plural: str = "s") -> str:
    return f"{number:,} {one}{'' if number == 1 else plural}"


def _data(size: int) -> str:
    mib = size / (1 << 20)
    return f"{mib / _GIB:.1f} GiB" if mib >= _GIB else f"{mib:.1f} MiB"
