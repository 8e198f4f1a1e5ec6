"""Plans, jobs and hosts as HTML for a notebook: tables and bars, no scripts; all text of others is escaped."""

import time
from collections.abc import Iterable, Sequence
from html import escape

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device
from gpusched.model.plan import DevicePlan, Plan
from gpusched.model.status import JobStatus
from gpusched.render.job_format import idle_mark, state_text, what
from gpusched.render.slowdown import slowdown

__all__ = ["jobs_html", "plan_html", "status_html"]

_COLOURS = ("#5fafff", "#5fd75f", "#d787ff", "#ffd75f")
_LEASED, _FOREIGN, _RESERVED = "#ffaf5f", "#d70000", "#875f5f"


def plan_html(plan: Plan) -> str:
    """Return the plan: a bar to scale for each device, and why."""
    head = f"<p><b>{escape(plan.request.workload)}</b> {list(plan.counts)} on {escape(plan.inventory.host)}</p>"
    rows = [(escape(f"GPU {one.label}"), _device_bar(one, plan), escape(_in_mib(one))) for one in plan.devices]
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*plan.why, *plan.warnings))
    return f"{head}{_table((), rows)}<ul>{notes}</ul>"


def jobs_html(jobs: Sequence[JobStatus]) -> str:
    """Return a table of jobs."""
    now = time.time()
    states = [state_text(one) + idle_mark(one, now) for one in jobs]
    rows = [
        (escape(one.id), escape(what(one)), escape(state), str(len(one.replicas)), escape(one.why or ""))
        for one, state in zip(jobs, states, strict=True)
    ]
    return _table(("job", "what", "state", "processes", "why it waits"), rows)


def status_html(snapshot: Snapshot) -> str:
    """Return the devices with a bar of their memory and what slows them, and the jobs."""
    rows = [
        (escape(f"GPU {one.label}"), escape(one.name), _memory_bar(one) + _slowdown(one))
        for one in snapshot.inventory.devices
    ]
    devices = _table((), rows) if rows else "<p>no GPU</p>"
    return f"<p><b>{escape(snapshot.inventory.host)}</b></p>{devices}{jobs_html(snapshot.jobs)}"


def _device_bar(device: DevicePlan, plan: Plan) -> str:
    roles = [role.name for role in plan.request.roles]
    here = set(device.replicas)
    parts = [
        (replica.share_mib, _COLOURS[roles.index(replica.role) % len(_COLOURS)], replica.name)
        for replica in plan.replicas
        if replica.name in here
    ]
    parts += [
        (device.leased_mib, _LEASED, "leased"),
        (device.foreign_mib, _FOREIGN, "foreign"),
        (device.reserved_mib, _RESERVED, "reserved"),
    ]
    return _bar(parts, device.total_mib)


def _memory_bar(device: Device) -> str:
    used, total = device.memory_used_mib, device.memory_total_mib
    if used is None or total is None:
        return "memory unknown"
    return f"{_bar([(used, _COLOURS[0], 'used')], total)} {used} of {total} MiB"


def _slowdown(device: Device) -> str:
    text = slowdown(device, unicode=True)
    return f"<br><small>{escape(text)}</small>" if text else ""


def _bar(parts: Iterable[tuple[int, str, str]], total: int) -> str:
    """Return a bar whose `parts` are an amount in MiB, a colour and a name each."""
    cells = "".join(
        f'<span title="{escape(name)}: {mib} MiB" style="display:inline-block;height:1em;background:{colour};'
        f'width:{100 * mib / total:.2f}%;box-shadow:inset -1px 0 white"></span>'
        for mib, colour, name in parts
        if mib > 0 and total > 0
    )
    return f'<div style="width:30em;background:#ddd;line-height:1em;white-space:nowrap;overflow:hidden">{cells}</div>'


def _in_mib(device: DevicePlan) -> str:
    return f"{device.planned_mib} of {device.plannable_mib} MiB planned, {len(device.replicas)} processes"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{top}</tr>' if top else ''}{body}</table>"
