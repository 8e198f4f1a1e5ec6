"""The status document (docs/reference.md) as a saved inventory: a snapshot and its leases to a document, and back.

It must not know how a snapshot is taken nor what is planned on it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault, UsageError
from gpusched.model.device import Device, Inventory, Source
from gpusched.model.lease import Lease, holders, shares_used

__all__ = ["document_of", "read_saved"]

_HOW_TO_SAVE: Final = "save one with: gpusched status --json > FILE"
_AMOUNTS: Final = ("memory_total_mib", "memory_used_mib", "memory_reserved_mib")


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    source: Source
    driver_version: str | None
    cuda_version: str | None
    devices: tuple[Device, ...]
    jobs: tuple[object, ...]
    cpus: tuple[int, ...] = ()
    memory_mib: int | None = None
    problem: str | None = None
    leases: tuple[Lease, ...] = ()


def document_of(inventory: Inventory, leases: tuple[Lease, ...] = ()) -> dict[str, object]:
    """Return the status document without its jobs, which the caller puts under "jobs"; ready for json.dumps.

    The leases show whose process a pid is. Every key of docs/reference.md is there.
    """
    by_pid, shares = holders(leases), shares_used(leases)
    return {
        "host": inventory.host,
        "source": inventory.source,
        "simulated": inventory.simulated,
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
        "problem": inventory.problem,
        "cpus": list(inventory.cpus),
        "memory_mib": inventory.memory_mib,
        "devices": [_device(device, leases, by_pid, shares) for device in inventory.devices],
        "leases": [msgspec.to_builtins(lease) for lease in leases],
        "jobs": [],
    }


def _device(
    device: Device, leases: tuple[Lease, ...], by_pid: Mapping[int, Lease], shares: Mapping[tuple[int, str], int]
) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(device)
    document["memory_leased_mib"] = sum(lease.share_mib for lease in leases if lease.device_uuid == device.uuid)
    processes: list[dict[str, object]] = []
    for process in device.processes:
        lease = by_pid.get(process.pid)
        processes.append(
            {
                **msgspec.to_builtins(process),
                "job": lease.job_label if lease else None,
                "replica": (lease.replica or None) if lease else None,
                "share_mib": shares.get((process.pid, device.uuid)) or None,
            }
        )
    document["processes"] = processes
    return document


def read_saved(path: Path) -> tuple[Inventory, tuple[Lease, ...], tuple[object, ...]]:
    """Return the snapshot (source "file"), the leases and the jobs, as they stand in the file, that `path` holds.

    The file is read once: it may be a pipe, such as `<(ssh host gpusched status --json)`.

    Raises UsageError if it holds something else, or something that cannot be: two devices with one uuid, a negative
    amount. Raises HostFault if the file cannot be read.
    """
    try:
        document = msgspec.convert(_read(path), type=_Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is not a saved status: {error}", _HOW_TO_SAVE) from None
    _check(path, document)
    inventory = Inventory(
        host=document.host,
        source="file",
        devices=document.devices,
        cpus=document.cpus,
        memory_mib=document.memory_mib,
        driver_version=document.driver_version,
        cuda_version=document.cuda_version,
        problem=document.problem,
    )
    return inventory, document.leases, document.jobs


def _read(path: Path) -> object:
    try:
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file", _HOW_TO_SAVE) from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "give a file that can be read") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved status: {error}", _HOW_TO_SAVE) from None


def _check(path: Path, document: _Document) -> None:
    seen: set[str] = set()
    for device in document.devices:
        if device.uuid in seen:
            raise UsageError(f"{path}: two devices have the uuid {device.uuid}", "give every device its own")
        seen.add(device.uuid)
        amounts = [getattr(device, name) for name in _AMOUNTS] + [each.memory_mib for each in device.processes]
        if any(amount is not None and amount < 0 for amount in amounts) or device.memory_total_mib == 0:
            raise UsageError(f"{path}: device {device.label} has a negative amount of memory, or none", _HOW_TO_SAVE)
    for lease in document.leases:
        if lease.share_mib < 0:
            raise UsageError(f"{path}: the lease of {lease.job}/{lease.replica} is negative", _HOW_TO_SAVE)
