"""What the page has of a moment: values ready to be drawn, without directories and environments."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.api.host import Status
from gpusched.linux.users import user_name
from gpusched.model.array import array_of
from gpusched.model.device import Device
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.job_format import idle_mark, members_text, state_text, what
from gpusched.render.memory_parts import MemoryParts, Part
from gpusched.render.slowdown import slowdown

__all__ = ["job_row", "job_rows", "view_of"]

_ORDER: Final = ("running", "starting", "stopping", "queued", "cancelled", "failed", "lost", "succeeded")
"""Whichever of its members' states comes first is an array's, as the daemon has it."""

_UNKNOWN: Final = {
    "processes": 0,
    "running": 0,
    "devices": [],
    "memory": 0,
    "why": None,
    "started": None,
    "score": None,
}
"""What a row has in the place of one member's, where nothing of its array is known."""


def view_of(status: Status) -> dict[str, object]:
    """Return the moment as the page draws it, but for its jobs; memory in MiB. All texts are as programs wrote them."""
    inventory, memory = status.inventory, MemoryParts(status)
    return {
        "host": f"{inventory.host} (simulated)" if inventory.simulated else inventory.host,
        "user": user_name(os.geteuid()),
        "driver": inventory.driver_version,
        "problem": inventory.problem or status.queue_problem,
        "none": _none(status),
        "devices": [_device(one, memory.of(one), status.jobs) for one in inventory.devices],
    }


def _none(status: Status) -> str:
    """Return what stands in the place of devices where there are none."""
    if status.default_machine is None:
        return "no GPU"
    return f"no GPU; those of {status.default_machine}, simulated: gpusched web --machine {status.default_machine}"


def _device(device: Device, parts: Sequence[Part], jobs: Sequence[JobStatus]) -> dict[str, object]:
    return {
        "label": device.label,
        "name": device.name,
        "uuid": device.uuid,
        "health": device.health,
        "problem": device.problem,
        "busy": device.utilization_percent,
        "celsius": device.temperature_c,
        "watts": device.power_w,
        "most_watts": device.power_limit_w,
        "total": device.memory_total_mib,
        "used": device.memory_used_mib,
        "slowed": slowdown(device, unicode=True),
        "parts": [
            {"kind": part.kind, "mib": part.mib, "job": None if part.job is None else jobs[part.job].id}
            for part in parts
            if part.mib
        ],
    }


def job_rows(jobs: Sequence[JobStatus], now: float) -> list[dict[str, object]]:
    """Return the rows of the page's list: an array is one, also while the daemon is away and only members are known."""
    known = {job.id for job in jobs if job.array is not None}
    rows: dict[str, dict[str, object]] = {}
    members: dict[str, list[JobStatus]] = {}
    for job in jobs:
        array = array_of(job.id)
        if array is None:
            rows[job.id] = job_row(job, now)
        elif array not in known:
            rows.setdefault(array, {})
            members.setdefault(array, []).append(job)
    for array, found in members.items():
        counts = Counter(job.state for job in found)
        if rows[array]:  # it is there as a job that waits: more members may come
            counts.setdefault(JobState.QUEUED, 0)
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        changed = {"id": array, "state": min(counts, key=_ORDER.index), "text": f"in the last hour: {text}"}
        rows[array] = (rows[array] or job_row(found[0], now)) | _UNKNOWN | changed
    return list(rows.values())


def job_row(job: JobStatus, now: float) -> dict[str, object]:
    """Return a job as the page lists it at the Unix time `now`; memory in MiB, times in Unix seconds."""
    over = job.state in JOB_TERMINAL
    progress = job.progress or {}
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "group": job.group,
        "state": job.state,
        "text": _text(job, now),
        "members": None if job.array is None else {"count": job.array.count, "ended": job.array.ended},
        "what": what(job),
        "why": job.why if job.state is JobState.QUEUED else job.message if over else None,
        "processes": len(job.replicas),
        "running": 0 if over else sum(one.state is ReplicaState.RUNNING for one in job.replicas),
        "devices": job.device_indices,
        "simulated": job.simulated,
        "memory": sum(one.all_shares_mib for one in job.replicas),
        "created": round(job.created),
        "started": _rounded(job.started),
        "ended": _rounded(job.ended),
        "step": progress.get("step"),
        "score": progress.get("score"),
    }


def _text(job: JobStatus, now: float) -> str:
    if job.array is None:
        return state_text(job) + idle_mark(job, now)
    state = "held" if job.held and job.state not in JOB_TERMINAL else state_text(job)
    return f"{state}, {members_text(job.array)}{idle_mark(job, now)}"


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
