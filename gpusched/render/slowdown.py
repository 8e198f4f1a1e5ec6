"""What keeps devices slow just now, in words. It must not read anything."""

from collections.abc import Sequence
from typing import Final

from gpusched.model.device import HEAT, POWER_LIMIT, Device
from gpusched.render.text import index_runs, printable

__all__ = ["is_usual", "slowdown", "slowdowns"]

_USUAL: Final = {POWER_LIMIT, "application clocks", "display clocks", "sync boost"}


def slowdown(device: Device, *, unicode: bool) -> str:
    """Return `slowed by: power limit (248 of 250 W), heat (84°C)`; "" if nothing slows the device, or none knows."""
    if not device.slowed_by:
        return ""
    return f"slowed by: {', '.join(_reason(name, device, unicode=unicode) for name in device.slowed_by)}"


def slowdowns(devices: Sequence[Device]) -> list[tuple[str, bool]]:
    """Return for hosts with many devices a line for each reason, `slowed by heat: GPU 3, 5-7`, and if it is usual."""
    slow: dict[str, list[int]] = {}
    for device in devices:
        if device.mig_index is None:
            for name in device.slowed_by or ():
                slow.setdefault(name, []).append(device.index)
    return [
        (printable(f"slowed by {name}: GPU {', '.join(index_runs(indices))}"), name in _USUAL)
        for name, indices in slow.items()
    ]


def is_usual(device: Device) -> bool:
    """Return whether all that slows the device is settings and a limit that busy devices often meet."""
    return set(device.slowed_by or ()) <= _USUAL


def _reason(name: str, device: Device, *, unicode: bool) -> str:
    if name == HEAT and device.temperature_c is not None:
        return f"{name} ({device.temperature_c}{'°C' if unicode else 'C'})"
    if name == POWER_LIMIT and device.power_w is not None and device.power_limit_w is not None:
        return f"{name} ({device.power_w} of {device.power_limit_w} W)"
    return printable(name)
