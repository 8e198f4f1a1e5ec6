"""The devices that take nothing new, as STATE_DIR/drained.json holds them, and how a snapshot shows them.

The daemon writes that file; what plans or shows reads it. Why a device is drained is decided elsewhere.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from gpusched.errors import HostFault
from gpusched.linux.files import replace_file
from gpusched.linux.regular_files import read_regular
from gpusched.model.device import Device, Inventory

__all__ = ["Drained", "drained_by", "lift", "mark", "read_drained", "write_drained"]

_FILE = "drained.json"
_MOST_BYTES = 1 << 22


_DRAINED: Final = "drained since "
_BY_FAULT: Final = ", after a fault"


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a device takes nothing new, and since when (Unix seconds).

    With a `boot_id` it lasts until the host is booted again, which resets its devices; with none until it is lifted.
    `lifted`: a person takes the device as it is, with the `ecc_errors` that it had then.
    """

    reason: str
    since: float
    boot_id: str = ""
    ecc_errors: int = 0
    lifted: bool = False


def read_drained(state_dir: Path, boot_id: str) -> dict[str, Drained]:
    """Return by uuid what the file holds of this boot of the host, lifted ones included. Raises HostFault."""
    path = state_dir / _FILE
    try:
        known = msgspec.json.decode(read_regular(path, _MOST_BYTES), type=dict[str, Drained])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make the file readable: it lists the devices to leave") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HostFault(f"{path}: {error}", "mend the file, or move it away: then no device is drained") from None
    return {uuid: drained for uuid, drained in known.items() if drained.boot_id in ("", boot_id)}


def write_drained(state_dir: Path, drained: Mapping[str, Drained]) -> None:
    """Replace the file by `drained`. Raises HostFault."""
    try:
        replace_file(state_dir / _FILE, msgspec.json.format(msgspec.json.encode(drained)))
    except OSError as error:
        raise HostFault(
            f"{state_dir / _FILE} cannot be written: {error.strerror}", "make room, or make the directory writable"
        ) from None


def lift(drained: Mapping[str, Drained], device: Device) -> dict[str, Drained]:
    """Return `drained` without `device`, whose ECC errors so far are no reason any more."""
    before = drained.get(device.uuid)
    if before is None:
        return dict(drained)
    return {
        **drained,
        device.uuid: msgspec.structs.replace(before, lifted=True, ecc_errors=device.ecc_errors or 0),
    }


def mark(inventory: Inventory, drained: Mapping[str, Drained]) -> Inventory:
    """Return `inventory` with health "error" and the reason on each drained device, MIG instances of one included.

    A device that already has another problem keeps it.
    """
    known = {uuid: why for uuid, why in drained.items() if not why.lifted}
    boards = {
        each.index: known[each.uuid] for each in inventory.devices if each.mig_index is None and each.uuid in known
    }

    def marked(device: Device) -> Device:
        why = known.get(device.uuid) or boards.get(device.index)
        if device.health != "ok" or why is None:
            return device
        fault = _BY_FAULT if why.boot_id else ""
        problem = f"{_DRAINED}{_when(why.since)}{fault}: {why.reason}"
        return msgspec.structs.replace(device, health="error", problem=problem)

    return msgspec.structs.replace(inventory, devices=tuple(marked(device) for device in inventory.devices))


def drained_by(device: Device) -> Literal["person", "fault"] | None:
    """Return by whom a device of a marked inventory is drained; None if it is not."""
    problem = device.problem or ""
    if device.health == "ok" or not problem.startswith(_DRAINED):
        return None
    return "fault" if re.match(rf"{_DRAINED}[-\d: ]+{_BY_FAULT}: ", problem) else "person"


def _when(since: float) -> str:
    then, today = time.localtime(since), time.localtime()
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
