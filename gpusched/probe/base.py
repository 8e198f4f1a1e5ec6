"""One question, `read_inventory`, and where its answer comes from. It must not know what is done with the answer."""

import difflib
import os
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault, UsageError
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.probe.host import host_name, memory_mib, usable_cpus
from gpusched.settings import driver_patience_s

__all__ = ["read_inventory", "read_machine", "require_usable"]

_NO_DEVICES: Final = "cpu"


def read_inventory(machine: str | None) -> tuple[Inventory, tuple[Lease, ...]]:
    """Return a snapshot of `machine`, and the leases saved with it (of a live host the jobs know them, not the probe).

    `machine` is None for this host, `cpu` for this host without its devices, the name of a profile such as
    `p3.8xlarge`, a description such as `4x16GiB` or `1x80GiB+2x24GiB`, or the path of a saved `gpusched status --json`.
    `$GPUSCHED_DRIVER_PATIENCE` bounds how long NVML is waited for. If the driver does not work, the inventory's
    `problem` is the reason (see `require_usable`). Raises UsageError for a machine that is none of these, HostFault
    for an unreadable file.
    """
    if machine is None:
        return _this_host(), ()
    inventory, leases, _ = read_machine(machine)
    return inventory, leases


def read_machine(machine: str) -> tuple[Inventory, tuple[Lease, ...], tuple[object, ...]]:
    """Return what read_inventory does for another machine than this host, and the jobs as a saved status holds them."""
    if machine == _NO_DEVICES:
        inventory = Inventory(host=host_name(), source="cpu", devices=(), cpus=usable_cpus(), memory_mib=memory_mib())
        return inventory, (), ()
    from gpusched.probe.profile import described_machine, profile_machine

    known = profile_machine(machine)
    if known is None and not _is_path(machine):
        known = described_machine(machine, usable_cpus())
        if known is None:
            raise _unknown(machine)
    if known is not None:
        return known, (), ()
    from gpusched.probe.saved import read_saved

    return read_saved(Path(machine))


def require_usable(inventory: Inventory) -> Inventory:
    """Return `inventory`, or raise HostFault if this host has a driver that does not let its devices be read."""
    if inventory.source == "nvml" and inventory.problem is not None:
        raise HostFault(inventory.problem, "to go on without devices: --machine cpu")
    return inventory


def _this_host() -> Inventory:
    from gpusched.probe.nvml import NvmlProbe

    probe = NvmlProbe(driver_patience_s(os.environ))
    inventory = probe.read()
    probe.close()
    return inventory


def _is_path(machine: str) -> bool:
    try:
        return "/" in machine or machine.endswith(".json") or Path(machine).is_file()
    except OSError:  # too long for a name
        return False


def _unknown(machine: str) -> UsageError:
    from gpusched.probe.profile import PROFILES

    family = machine.lower().partition(".")[0]
    near = difflib.get_close_matches(machine.lower(), [*PROFILES, _NO_DEVICES], n=4, cutoff=0.6)
    near += [name for name in PROFILES if name.partition(".")[0] == family and name not in near]
    known = ", ".join(near[:6]) or ", ".join(sorted({name.partition(".")[0] for name in PROFILES})) + " and their sizes"
    return UsageError(
        f"machine {machine!r} is not known; near it: {known}"
        if near
        else f"machine {machine!r} is not known; families that are: {known}",
        "or describe it, such as 4x16GiB, or give a file saved by gpusched status --json",
    )
