"""Which devices are to take nothing new: those that report hardware errors, wrong memory, or that are lost. No I/O.

A drain is no verdict on what runs there: jobs go on, nothing new is placed. It lasts until a person lifts it or the
host is booted again. Faults that the catalog lays to programs are only noted.

Source: NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors. An Xid drains if the catalog asks for a reset of the
GPU, a restart of the host or a check of the hardware, or if it means that memory was retired, is to be remapped (which
a reset of the idle device does) or wears out. An Xid without an entry here is noted.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpusched.model.device import Device, Inventory
from gpusched.probe.drained import Drained
from gpusched.probe.nvml_events import DeviceEvent

__all__ = ["DRAINING_XIDS", "Findings", "assess"]

DRAINING_XIDS: Final = {
    46: "it stopped processing",
    48: "a double-bit memory error",
    54: "its auxiliary power is not connected",
    61: "its internal micro-controller stopped",
    62: "its internal micro-controller halted",
    63: "memory was retired or is to be remapped, which a reset of the GPU does",
    64: "bad memory could not be retired or remapped",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit memory errors",
    94: "an uncorrected memory error that hit one program",
    95: "an uncorrected memory error that may have hit any program",
    109: "it could not switch between programs in time",
    110: "a security fault",
    119: "its system processor (GSP) did not answer",
    120: "its system processor (GSP) failed",
    136: "an NVLink did not come up",
    140: "a memory error that was not recovered from",
    143: "it could not be initialised",
    155: "an NVLink error that the driver found",
    156: "a part of it was retired, which a reset of the GPU completes",
    158: "a fatal timeout",
    171: "an uncorrected error of its memory",
    172: "an uncorrected error of its caches",
}
"""Xids after which a device takes nothing new, in words."""

_NOTED_XIDS: Final = {
    8: "a program's work did not end in time",
    11: "a program sent what the GPU does not understand",
    13: "a program's kernel failed, such as by an index out of bounds",
    31: "a program read or wrote memory that is not its own",
    32: "a program sent what the GPU does not understand",
    43: "a program's work was stopped after its own fault",
    45: "a program was ended while the GPU worked for it",
    68: "the video decoder failed for a program",
    69: "a program used the graphics engine wrongly",
}


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is new: devices to drain, by uuid, and what only goes to the log, one sentence each."""

    drains: dict[str, Drained]
    notes: tuple[str, ...] = ()


def assess(
    inventory: Inventory, events: Sequence[DeviceEvent], drained: Mapping[str, Drained], now: float, boot_id: str
) -> Findings:
    """Return what is new in a snapshot and in the events since the last one, beside what is `drained` already.

    A lifted drain comes again for a new event, or when the number of ECC errors is no longer the one that was accepted.
    `now` in Unix seconds. Described devices are never drained.
    """
    if inventory.simulated:
        return Findings(drains={})
    devices = {device.uuid: device for device in inventory.devices}
    held = {uuid for uuid, known in drained.items() if not known.lifted}
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    notes: list[str] = []
    for (uuid, number), times in collections.Counter((event.uuid, event.number) for event in events).items():
        text = _meaning(number)
        if number in DRAINING_XIDS and uuid not in held:
            reasons[uuid].append(text)
        else:
            label = devices[uuid].label if uuid in devices else uuid
            notes.append(f"GPU {label}: {text}{f' ({times} times)' if times > 1 else ''}")
    for device in inventory.devices:
        if device.uuid not in held:
            reasons[device.uuid] += _state(device, drained.get(device.uuid))
    drains_now = {
        uuid: Drained(
            reason="; ".join(dict.fromkeys(texts)), since=now, boot_id=boot_id, ecc_errors=_ecc(devices.get(uuid))
        )
        for uuid, texts in reasons.items()
        if texts
    }
    return Findings(drains=drains_now, notes=tuple(notes))


def _meaning(number: int) -> str:
    """Return an Xid in words."""
    meaning = DRAINING_XIDS.get(number) or _NOTED_XIDS.get(number)
    return f"Xid {number}, {meaning}" if meaning else f"Xid {number}: see docs.nvidia.com/deploy/xid-errors"


def _state(device: Device, lifted: Drained | None) -> list[str]:
    """Return what is wrong with a device that is not drained; `lifted`: the drain that a person has lifted."""
    if device.health == "lost" and lifted is None and not device.uuid.startswith("unknown"):
        return ["the GPU has fallen off the bus"]
    errors = _ecc(device)
    if errors and errors != (lifted.ecc_errors if lifted else 0):
        return [f"{errors} uncorrected memory error{'s' if errors > 1 else ''} (ECC) since the driver was loaded"]
    return []


def _ecc(device: Device | None) -> int:
    return (device.ecc_errors or 0) if device is not None else 0
