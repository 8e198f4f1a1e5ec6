"""Which devices a person means by `0,2`, `0:2` or the first characters of a uuid."""

from collections.abc import Collection

from gpusched.errors import NeverFits, UsageError
from gpusched.model.device import Device, Inventory
from gpusched.model.job import VisibleDevices
from gpusched.planner.plan_format import gpus as gpu_list
from gpusched.planner.visible_devices import is_parent, restriction
from gpusched.units import format_mib

__all__ = ["named_devices", "number_of_devices", "select_devices"]


def select_devices(
    inventory: Inventory,
    gpus: str | None,
    exclude: str | None,
    visible: VisibleDevices | None = None,
    *,
    counted: bool = False,
) -> frozenset[str] | None:
    """Return the uuids that `gpus` names (None: all) without those that `exclude` names, or None if nothing restricts.

    `visible` leaves the rest no device, and so an empty set is possible with it alone; what `gpus` names beyond it is
    refused, for in a container nothing else could be had either, and in a shell of a scheduler nothing else is ours.
    `counted`: of a command, whose number of devices is another option, which a refusal names.

    A name is an index (`0`: the GPU, or all its MIG instances), a MIG instance (`0:2`) or the start of a uuid. Raises
    UsageError for a name that fits no device or more than one GPU, and for a choice that leaves none; NeverFits where
    there is nothing to choose from.
    """
    within = None if visible is None or not inventory.devices else restriction(inventory, visible).uuids
    if gpus is None and exclude is None:
        return within
    if not inventory.devices:
        if counted:
            problem = f"--gpus and --exclude-gpus name devices, and {inventory.host} has no GPU"
            raise NeverFits(problem, "to run without one: --num-gpus 0")
        raise NeverFits(f"{inventory.host} has no GPU", "leave --gpus and --exclude-gpus out, or give a --machine")
    everything = frozenset(device.uuid for device in inventory.devices) if within is None else within
    wanted = everything if gpus is None else _named(inventory, gpus, counted=counted)
    if within is not None and visible is not None and not wanted <= within:
        raise _outside(inventory, wanted - within, within, visible)
    unwanted = frozenset[str]() if exclude is None else named_devices(inventory, exclude, "--exclude-gpus")
    if not wanted - unwanted:
        raise UsageError("--gpus and --exclude-gpus leave no device", _there_is(inventory))
    return wanted - unwanted


def _outside(
    inventory: Inventory, wanted: Collection[str], within: Collection[str], visible: VisibleDevices
) -> UsageError:
    """Return the error for devices that were named, and are none of those that `visible` leaves."""
    outside, left = (
        [device.label for device in inventory.devices if device.uuid in uuids] for uuids in (wanted, within)
    )
    problem = f"--gpus: {gpu_list(outside)} is outside of {visible.variable}"
    choice = f"name some of {gpu_list(left)}" if left else "leave --gpus out"
    return UsageError(problem, f"{choice}, or unset CUDA_VISIBLE_DEVICES; indices are those of gpusched status")


def number_of_devices(inventory: Inventory, uuids: Collection[str]) -> int:
    """Return how many of the devices `uuids` can be one replica's as a whole: all but the parents of MIG instances."""
    return sum(not is_parent(inventory, device) for device in inventory.devices if device.uuid in uuids)


def named_devices(inventory: Inventory, names: str, option: str) -> frozenset[str]:
    """Return the uuids of the devices that `names` (`0,2`) mean; `option` is where they were typed. See select_devices.

    Raises UsageError for a name that fits no device or more than one GPU.
    """
    found = set[str]()
    for name in (part.strip() for part in names.split(",")):
        devices = _meant(inventory, name)
        if not devices:
            raise UsageError(f"{option}: there is no device {name!r}", _there_is(inventory))
        if len({device.index for device in devices}) > 1:
            labels = ", ".join(device.label for device in devices)
            raise UsageError(
                f"{option}: {name!r} is the start of more than one uuid (GPUs {labels})", "give more of it"
            )
        found |= {device.uuid for device in devices}
    return frozenset(found)


def _named(inventory: Inventory, names: str, *, counted: bool) -> frozenset[str]:
    """Return what named_devices does for `--gpus`; a number that is no device may have been meant as a count."""
    try:
        return named_devices(inventory, names, "--gpus")
    except UsageError as error:
        if not (counted and names.strip().isdecimal()):
            raise
        hint = f"{error.hint}; --gpus names devices; for {names.strip()} of them: --num-gpus {names.strip()}"
        raise UsageError(error.message, hint) from None


def _meant(inventory: Inventory, name: str) -> list[Device]:
    if name.isdecimal():
        return [device for device in inventory.devices if str(device.index) == name]
    return [device for device in inventory.devices if device.label == name or (name and device.uuid.startswith(name))]


def _there_is(inventory: Inventory) -> str:
    listed = [f"{device.label} ({device.name}, {_memory(device)})" for device in inventory.devices[:16]]
    more = len(inventory.devices) - len(listed)
    return f"there is: {', '.join(listed)}{f' and {more} more' if more else ''}"


def _memory(device: Device) -> str:
    return "memory unknown" if device.memory_total_mib is None else format_mib(device.memory_total_mib)
