"""Whose energy it was: what devices have used between two readings, dealt out to their processes. No I/O, no clock.

NVML counts the energy of a device and not that of a process. Each process is given a part by the time in which its
kernels ran; where none ran, all have equal parts, as they keep the device awake. That is exact for a process that is
alone on its device. Else it is attributed, and marked so.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpusched.model.device import Device, DeviceProcess, Inventory

__all__ = ["Energy", "EnergyMeter"]


class Energy(NamedTuple):
    """Joules of a process, on all its devices. `attributed`: others were on one of them, too."""

    joules: float
    attributed: bool


class EnergyMeter:
    """Remembers what each device had counted at the reading before."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since_last(self, inventory: Inventory) -> dict[int, Energy]:
        """Return what each process, by its pid, has used since the reading before, as far as that is known.

        Nothing is known of a device at its first reading, after its counter was set back, of MIG instances, and where
        the driver does not report how long the kernels of one of several processes ran.
        """
        before = self._before
        self._before = {one.uuid: one.energy_j for one in inventory.devices if one.energy_j is not None}
        found: dict[int, Energy] = {}
        for device in inventory.devices:
            used = self._before.get(device.uuid, -1) - before.get(device.uuid, 0)
            if device.uuid not in before or used < 0:
                continue
            for process, joules in zip(device.processes, _parts(device, used), strict=False):
                more = found.get(process.pid, Energy(0.0, attributed=False))
                attributed = more.attributed or len(device.processes) > 1
                found[process.pid] = Energy(more.joules + joules, attributed)
        return found


def _parts(device: Device, joules: int) -> list[float]:
    """Return the parts of a device's processes, in their order; nothing where they are not known."""
    weights = _weights(device.processes)
    return [joules * weight / sum(weights) for weight in weights]


def _weights(processes: Sequence[DeviceProcess]) -> list[int]:
    if len(processes) == 1:
        return [1]
    busy = [one.sm_percent for one in processes if one.sm_percent is not None]
    if len(busy) < len(processes):
        return []
    return busy if any(busy) else [1] * len(busy)
