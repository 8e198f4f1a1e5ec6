"""Which devices a person's CUDA_VISIBLE_DEVICES leaves: read as CUDA does, on gpusched's own list of devices.

NVIDIA_VISIBLE_DEVICES is not read: the runtime of a container has followed it before NVML lists any device there, and
its indices are those of the host.
"""

from typing import NamedTuple

from gpusched.errors import UsageError
from gpusched.model.device import Device, Inventory
from gpusched.model.job import VisibleDevices
from gpusched.planner.plan_format import gpus

__all__ = ["Restriction", "is_parent", "restriction"]

_NONE = ("", "-1", "NoDevFiles")
"""What is written for no device; the last is what Slurm sets."""


class Restriction(NamedTuple):
    """The uuids of the devices that are left, and a line that explains it; an empty one where all are."""

    uuids: frozenset[str]
    line: str


def restriction(inventory: Inventory, visible: VisibleDevices) -> Restriction:
    """Return what `visible` leaves of the devices. As in CUDA, what follows the first entry of no device is not read.

    An entry is an index, or the start of the uuid of one GPU or MIG instance; of a GPU in MIG mode all instances are
    left. Raises UsageError where an index would mean one device here and perhaps another one to CUDA.
    """
    found = set[str]()
    wrong, by_index = None, False
    for entry in (part.strip() for part in visible.names.split(",")):
        devices = _meant(inventory, entry)
        if len({device.index for device in devices}) != 1:
            wrong = entry
            break
        by_index = by_index or entry.isdecimal()
        found |= {device.uuid for device in devices}
    everything = {device.uuid for device in inventory.devices}
    if found == everything:
        return Restriction(frozenset(found), "")
    if by_index and not visible.by_bus and len({one.name for one in inventory.devices if one.mig_index is None}) > 1:
        problem = (
            f"{visible.variable}: CUDA counts devices of several models the fastest first, and gpusched by the bus"
        )
        raise UsageError(problem, "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices by uuid")
    return Restriction(frozenset(found), _line(inventory, visible, found, wrong))


def _line(inventory: Inventory, visible: VisibleDevices, found: set[str], wrong: str | None) -> str:
    here = (device for device in inventory.devices if device.uuid in found)
    labels = [device.label for device in here if not is_parent(inventory, device)]
    left = f"only {gpus(labels)} may be used" if labels else "no device may be used"
    stops = "" if wrong is None or wrong in _NONE else f"; {wrong!r} is no device here, and CUDA stops there"
    return f"{visible.variable}: {left}{stops}"


def _meant(inventory: Inventory, entry: str) -> list[Device]:
    if entry.isascii() and entry.isdecimal():
        return [device for device in inventory.devices if str(device.index) == (entry.lstrip("0") or "0")]
    if not entry.startswith(("GPU-", "MIG-")):
        return []
    meant = [device for device in inventory.devices if device.uuid.startswith(entry)]
    whole = {device.index for device in meant if is_parent(inventory, device)}
    return meant + [one for one in inventory.devices if one.index in whole and one.mig_index is not None]


def is_parent(inventory: Inventory, device: Device) -> bool:
    """Return whether the device is there as MIG instances."""
    return device.mig_index is None and any(
        other.mig_index is not None and other.index == device.index for other in inventory.devices
    )
