"""What the page has of a moment: values ready to be drawn, without directories and environments."""

import os
from collections.abc import Sequence

from gpusched.api.host import Status
from gpusched.linux.users import user_name
from gpusched.model.device import Device
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.render.job_format import idle_mark, state_text, what
from gpusched.render.memory_parts import memory_parts
from gpusched.render.slowdown import slowdown

__all__ = ["view_of"]


def view_of(status: Status) -> dict[str, object]:
    """Return the moment as the page draws it; memory in MiB, times in seconds. All texts are as programs wrote them."""
    inventory = status.inventory
    return {
        "host": inventory.host,
        "user": user_name(os.geteuid()),
        "driver": inventory.driver_version,
        "problem": inventory.problem or status.queue_problem,
        "devices": [_device(one, status) for one in inventory.devices],
        "jobs": [_job(one, status.time) for one in status.jobs],
    }


def _device(device: Device, status: Status) -> dict[str, object]:
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
            {"kind": part.kind, "mib": part.mib, "job": None if part.job is None else status.jobs[part.job].id}
            for part in memory_parts(device, status)
            if part.mib
        ],
    }


def _job(job: JobStatus, now: float) -> dict[str, object]:
    over = job.state in JOB_TERMINAL
    progress = job.progress or {}
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "group": job.group,
        "state": job.state,
        "text": state_text(job) + idle_mark(job, now),
        "what": what(job),
        "why": job.why if job.state is JobState.QUEUED else job.message if over else None,
        "processes": len(job.replicas),
        "running": 0 if over else sum(one.state is ReplicaState.RUNNING for one in job.replicas),
        "devices": _devices(job.replicas),
        "simulated": job.simulated,
        "memory": sum(one.share_mib + sum(share.share_mib for share in one.further) for one in job.replicas),
        "created": round(job.created),
        "started": _rounded(job.started),
        "ended": _rounded(job.ended),
        "step": progress.get("step"),
        "score": progress.get("score"),
    }


def _devices(replicas: Sequence[ReplicaStatus]) -> list[int]:
    found = {one.device_index for one in replicas if one.device_index is not None}
    found |= {share.device_index for one in replicas for share in one.further}
    return sorted(found)


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
