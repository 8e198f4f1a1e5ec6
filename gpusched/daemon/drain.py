"""Devices that take nothing new, by a person's order or because of hardware trouble."""

import logging
import time
from typing import Final

from gpusched.daemon.health import assess
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, UsageError
from gpusched.linux.processes import boot_id
from gpusched.model.device import Device, Inventory
from gpusched.planner import named_devices
from gpusched.probe.drained import Drained, lift
from gpusched.probe.nvml_events import DeviceEvent

__all__ = ["drain", "drain_the_ill"]

_LOG: Final = logging.getLogger(__name__)


def drain(state: DaemonState, device: str, reason: str | None) -> dict[str, str]:
    """Place nothing new on a device, or use it again where there is no reason; return all that take nothing new.

    They are returned by uuid, with their reasons. Raises UsageError, HostFault.
    """
    drained = state.devices.drained
    for one in _meant(state, device, "undrain" if reason is None else "drain"):
        if reason is None:
            drained = lift(drained, one)
        else:
            drained = {**drained, one.uuid: Drained(reason=reason or "drained by hand", since=time.time())}
    state.devices.drain(drained)
    state.changed()
    return state.devices.drained_reasons()


def drain_the_ill(state: DaemonState, inventory: Inventory, events: list[DeviceEvent]) -> None:
    """Drain the devices with trouble in a reading or in events. What cannot be saved becomes a problem in Pong."""
    findings = assess(inventory, events, state.devices.drained, time.time(), boot_id())
    for note in findings.notes:
        _LOG.warning("%s", note)
    if not findings.drains:
        return
    for uuid, why in findings.drains.items():
        name = state.devices.named(uuid)
        _LOG.error("%s takes nothing new: %s", name, why.reason)
        state.jobs.events.note_drain(name, uuid, why.reason)
    state.jobs.save(time.monotonic())  # first: a drain that is on disk is not found once more
    try:
        state.devices.drain({**state.devices.drained, **findings.drains})
        state.problems.pop("drained", None)
    except HostFault as error:
        state.devices.drained = {**state.devices.drained, **findings.drains}
        state.problems["drained"] = str(error)
    state.changed()


def _meant(state: DaemonState, device: str, action: str) -> list[Device]:
    inventory = state.devices.known()
    if inventory is None:
        raise HostFault("the devices have not been read yet", "try again in a second")
    if not inventory.devices:
        raise UsageError(f"{inventory.host} has no GPU", f"there is nothing to {action}")
    named = named_devices(inventory, device, action)
    return [one for one in inventory.devices if one.uuid in named]
