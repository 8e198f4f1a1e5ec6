"""The lease directory as docs/reference.md describes it, read without the product's code."""

import fcntl
import json
import os
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Held", "overcommitted", "read_held"]

_FLOCK: Final = "hhqqi4x"  # struct flock of fcntl(2), 64 bits
_F_OFD_GETLK: Final = 36


@dataclass(frozen=True)
class Held:
    """One share that is held: `file` names the lease file, `job` its job."""

    file: str
    job: str
    device: str
    replica: str
    mib: int
    whole: bool


def read_held(folder: Path) -> set[Held]:
    """Every share of every file that a live process has locked."""
    found: set[Held] = set()
    for path in folder.glob("*.lease"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # it has just gone
        try:
            if _is_locked(descriptor):
                found |= _shares(path.name, os.read(descriptor, 1 << 20).decode(errors="replace"))
        finally:
            os.close(descriptor)
    return found


def overcommitted(held: set[Held], plannable_mib: int) -> list[tuple[str, Sequence[Held]]]:
    """Devices that are promised beyond what can be planned, or whose whole-device lease is not alone."""
    by_device: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        by_device[one.device].append(one)
    return [
        (device, shares)
        for device, shares in by_device.items()
        if sum(one.mib for one in shares) > plannable_mib or (any(one.whole for one in shares) and len(shares) > 1)
    ]


def _is_locked(descriptor: int) -> bool:
    """Whether byte 0 or 1 is locked by another open file description."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 2, 0)
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, _F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def _shares(name: str, text: str) -> set[Held]:
    header, *lines = text.splitlines() or [""]
    try:
        job = json.loads(header)["job"]
        shares = [json.loads(line[1:]) for line in lines if line.startswith("+")]
    except (ValueError, KeyError):
        return set()  # damaged by the soak itself
    return {
        Held(name, job, one["device_uuid"], one["replica"], one["share_mib"], one.get("whole", False)) for one in shares
    }
