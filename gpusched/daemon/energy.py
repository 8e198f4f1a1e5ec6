"""Whose energy it was: what devices have used between two readings, dealt out to those on them. No I/O, no clock.

NVML counts the energy of a device and not that of a process. Each replica, and each process of others, is given a part
by the time in which its kernels ran; where none ran, all have equal parts, as they keep the device awake. That is exact
for a replica that is alone on its device. Else it is attributed, and marked so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpusched.model.device import Device, Inventory
from gpusched.model.lease import Holder, Lease

__all__ = ["Energy", "EnergyMeter"]

_Owner = Holder | int  # a replica, or the pid of a process of others


class Energy(NamedTuple):
    """Joules of a replica, on all its devices. `attributed`: others were on one of them, too."""

    joules: float
    attributed: bool


class EnergyMeter:
    """Remembers what each device had counted at the reading before."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since_last(self, inventory: Inventory, by_pid: Mapping[int, Lease]) -> dict[_Owner, Energy]:
        """Return what each holder of a share, or process of others, has used since the reading before.

        `by_pid`: whose processes these are. Nothing is known of a device at its first reading, after its counter was
        set back, of MIG instances, and where the driver does not report how long the kernels of one of several ran.
        """
        before = self._before
        self._before = {one.uuid: one.energy_j for one in inventory.devices if one.energy_j is not None}
        found: dict[_Owner, Energy] = {}
        for device in inventory.devices:
            used = self._before.get(device.uuid, -1) - before.get(device.uuid, 0)
            if device.uuid not in before or used < 0:
                continue
            parts = _parts(device, used, by_pid)
            for owner, joules in parts.items():
                more = found.get(owner, Energy(0.0, attributed=False))
                found[owner] = Energy(more.joules + joules, more.attributed or len(parts) > 1)
        return found


def _parts(device: Device, joules: int, by_pid: Mapping[int, Lease]) -> dict[_Owner, float]:
    """Return the part of each on a device; nothing where they are not known."""
    busy: dict[_Owner, int] = {}
    unknown = False
    for process in device.processes:
        lease = by_pid.get(process.pid)
        owner = process.pid if lease is None else lease.holder
        busy[owner] = busy.get(owner, 0) + (process.sm_percent or 0)
        unknown |= process.sm_percent is None
    if unknown and len(busy) > 1:
        return {}
    if not any(busy.values()):
        busy = dict.fromkeys(busy, 1)
    return {owner: joules * part / sum(busy.values()) for owner, part in busy.items()}
