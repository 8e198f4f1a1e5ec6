"""What the daemon knows of this host's devices: NVML kept open, read in a thread, and remembered for a second.

A reading that is stuck blocks no request: what was read before stays known, with its age.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Final

from gpusched.linux.processes import boot_id
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.probe.base import read_machine
from gpusched.probe.drained import Drained, mark, read_drained, write_drained
from gpusched.probe.reading import Reading
from gpusched.settings import Settings

__all__ = ["Devices"]

_MOST_MACHINES: Final = 32
_FIRST_S: Final = 8.0
_LAST_STEP_S: Final = 0.05  # what a thread may take between its wake-up call and its end


class Devices:
    """The devices of this host, and of machines that are only described. Times are monotonic seconds.

    `read` reads this host and may take its time; `finished` is a descriptor that becomes readable when it has.
    `drained` are those of this host that take nothing new, lifted ones included (see probe/drained.py).
    """

    def __init__(self, settings: Settings, read: Callable[[], Inventory]) -> None:
        self.drained: dict[str, Drained] = {}
        self.finished = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._state_dir = settings.state_dir
        self._read = read
        self._reading: Reading[Inventory] | None = None
        self._known: Inventory | None = None
        self._read_at = 0.0
        self._labels: dict[str, str] = {}
        self._machines: dict[str, tuple[Inventory, tuple[Lease, ...]]] = {}

    def load(self) -> None:
        """Read which devices are drained. Raises HostFault."""
        self.drained = read_drained(self._state_dir, boot_id())

    def await_first(self, now: float) -> None:
        """Wait for the first reading; if the driver hangs, the reading reports that after a few seconds."""
        self.fresh(now, 0.0)
        if self._reading is not None and self._reading.wait(_FIRST_S):
            self.take(now)

    def known(self) -> Inventory | None:
        """Return the latest reading, however old, without what is drained; None before the first."""
        return self._known

    def fresh(self, now: float, age_s: float) -> Inventory | None:
        """Return a reading of at most `age_s`, drained devices marked; or None, and one has begun."""
        if self._known is not None and now - self._read_at <= age_s:
            return mark(self._known, self.drained)
        if self._reading is None:
            self._reading = Reading(self._read_and_notify, "devices")
        return None

    def take(self, now: float) -> None:
        """Take in a reading that has finished, if there is one."""
        with contextlib.suppress(BlockingIOError):
            if os.eventfd_read(self.finished) and self._reading is not None:
                self._reading.wait(_LAST_STEP_S)
        if self._reading is not None and self._reading.wait(0):
            self._known, self._read_at, self._reading = self._reading.result(), now, None
            self._labels |= {device.uuid: device.label for device in self._known.devices}

    def named(self, uuid: str) -> str:
        """Return what people call a device, `GPU 2`; one that was lost keeps its name, one never seen has its uuid."""
        return f"GPU {self._labels[uuid]}" if uuid in self._labels else uuid

    def machine(self, name: str) -> tuple[Inventory, tuple[Lease, ...]]:
        """Return a described machine and the leases saved with it. Raises UsageError or HostFault if it is none."""
        if name not in self._machines:
            inventory, leases, _ = read_machine(name)
            if len(self._machines) >= _MOST_MACHINES:
                self._machines.clear()
            self._machines[name] = (inventory, leases)
        return self._machines[name]

    def drain(self, drained: dict[str, Drained]) -> None:
        """Place nothing new on these devices, by uuid, and no others; also after a restart. Raises HostFault."""
        write_drained(self._state_dir, drained)
        self.drained = drained

    def drained_reasons(self) -> dict[str, str]:
        """Return by uuid why devices take nothing new."""
        return {uuid: why.reason for uuid, why in self.drained.items() if not why.lifted}

    def _read_and_notify(self) -> Inventory:
        try:
            return self._read()
        finally:
            os.eventfd_write(self.finished, 1)
