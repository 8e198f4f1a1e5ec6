"""`gpusched status`: the devices of this host, their users, and the jobs; for people, for programs, for a prompt."""

import os
import sys
from typing import Annotated, Final

from gpusched.cli.options import Option
from gpusched.errors import UsageError
from gpusched.execution.snapshot import Snapshot, document, reader_of
from gpusched.model.device import Device
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.text import printable
from gpusched.settings import load_settings, machine_typed

__all__ = ["oneline", "status"]

_MOST_IN_ONE_LINE: Final = 8


def status(
    as_json: Annotated[bool, Option("Print JSON; every field, null where it is unknown.", ("--json",))] = False,
    watch: Annotated[bool, Option("Keep it on the screen and up to date; q quits.", ("--watch", "-w"))] = False,
    in_one_line: Annotated[bool, Option("One line, for a shell prompt.", ("--oneline",))] = False,
    machine: Annotated[
        str | None,
        Option("Another machine than this host, or a saved status.", metavar="NAME|4x16GiB|FILE"),
    ] = None,
    interval: Annotated[float | None, Option("How often --watch reads again [default: 1].", metavar="SECONDS")] = None,
) -> None:
    """Show the devices, the memory that each job and each process uses of them, and the jobs.

    Example: gpusched status --json > saved.json; gpusched plan --machine saved.json
    """
    if as_json + watch + in_one_line > 1:
        raise UsageError("--json, --watch and --oneline exclude each other", "give one of them")
    if interval is not None and not watch:
        raise UsageError("--interval belongs to --watch", "add --watch, or leave it out")
    if interval is not None and not 0.1 <= interval <= 3600:  # noqa: PLR2004 (NaN fails this comparison too)
        raise UsageError(f"--interval: {interval} s is out of range", "give a number of seconds from 0.1 to 3600")
    read = reader_of(machine_typed(machine), load_settings(os.environ))
    if as_json:
        import json

        print(json.dumps(document(read()), indent=2))
    elif in_one_line:
        print(oneline(read(), unicode=_unicode()))
    elif watch:
        from gpusched.cli.watch_status import watch_status

        watch_status(read, 1.0 if interval is None else interval, unicode=_unicode())
    else:
        from gpusched.render.status import print_status

        print_status(read(), unicode=_unicode())


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


def _unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
