"""The status in one line, for a shell prompt."""

from typing import Final

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.text import printable

__all__ = ["oneline"]

_MOST_IN_ONE_LINE: Final = 8


def oneline(snapshot: Snapshot, *, unicode: bool) -> str:
    """Return the snapshot in one line: `GPU 37% 1.0/15.8G · 45°C | 0% 0.0/15.8G · 41°C | snake-4 33/33 running`.

    More than 8 devices are summed up. `unicode` False keeps it ASCII.
    """
    inventory = snapshot.inventory
    parts: list[str] = []
    if not inventory.devices:
        parts.append(f"no GPU: {inventory.problem.partition(':')[0]}" if inventory.problem else "no GPU")
    elif len(inventory.devices) > _MOST_IN_ONE_LINE:
        parts.append(f"{len(inventory.devices)} GPUs {_sum(inventory.devices)}")
    else:
        parts += [_device(device) for device in inventory.devices]
        parts[0] = f"GPU {parts[0]}"
    if inventory.simulated:
        parts[-1] += " (simulated)"
    parts += [_job(job) for job in snapshot.jobs if job.state not in JOB_TERMINAL and job.state is not JobState.QUEUED]
    if waiting := sum(job.state is JobState.QUEUED for job in snapshot.jobs):
        parts.append(f"{waiting} queued")
    line = printable(" | ".join(parts))
    return line if unicode else line.replace(" · ", " ").replace("°", "").encode("ascii", "replace").decode()


def _device(device: Device) -> str:
    if device.health != "ok":
        return device.health
    return f"{_amount(device.utilization_percent, '%')} {_memory([device])} · {_amount(device.temperature_c, '°C')}"


def _sum(devices: tuple[Device, ...]) -> str:
    physical = [device for device in devices if device.mig_index is None]
    busy = [device.utilization_percent for device in physical if device.utilization_percent is not None]
    hot = [device.temperature_c for device in physical if device.temperature_c is not None]
    ill = sum(device.health != "ok" for device in physical)
    load = _amount(sum(busy) // len(busy) if busy else None, "%")
    text = f"{load} {_memory(physical)} · {_amount(max(hot, default=None), '°C')}"
    return f"{text} · {ill} not ok" if ill else text


def _memory(devices: list[Device]) -> str:
    if any(device.memory_used_mib is None or device.memory_total_mib is None for device in devices):
        return "-"
    used, total = (sum(getattr(device, f"memory_{which}_mib") for device in devices) for which in ("used", "total"))
    return f"{used / 1024:.1f}/{total / 1024:.1f}G"


def _amount(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"


def _job(job: JobStatus) -> str:
    running = sum(replica.state is ReplicaState.RUNNING for replica in job.replicas)
    return f"{job.id} {running}/{len(job.replicas)} {job.state}{' (simulated)' if job.simulated else ''}"
