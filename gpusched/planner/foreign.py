"""Processes of no job that a plan passes over, as a person asked: by pid, by user, or since they hold little. Pure.

What they hold counts as free then. On a device that lets only one process in they count all the same.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease, holders
from gpusched.units import format_mib, parse_mib

__all__ = ["without_ignored"]

_OPTION: Final = "--ignore-foreign"
_ONE_PROCESS: Final = ("exclusive_process", "exclusive_thread")
_MOST_NAMED: Final = 4
_USER: Final = re.compile(r"[^\W\d][\w.@+-]*\$?")

_Found = tuple[Device, DeviceProcess]


class _Choice(NamedTuple):
    text: str
    matches: Callable[[DeviceProcess], bool]


def without_ignored(
    inventory: Inventory, leases: Sequence[Lease], ignored: str, only: Collection[str] | None = None
) -> tuple[Inventory, tuple[str, ...]]:
    """Return the inventory without the processes that `ignored` (`4711,bob,<1GiB`) means, and what that risks.

    `only`: the uuids of the devices of which this is reported, None for all. Raises UsageError for what it cannot mean.
    """
    choices = [_choice(part.strip()) for part in ignored.split(",")]
    own = holders(leases)
    matched, passed_over, kept = set[str](), list[_Found](), list[_Found]()
    devices = []
    for device in inventory.devices:
        reported = only is None or device.uuid in only
        gone = set[int]()
        for process in device.processes:
            texts = {one.text for one in choices if process.pid not in own and one.matches(process)}
            if texts and reported:
                matched |= texts
                (kept if device.compute_mode in _ONE_PROCESS else passed_over).append((device, process))
            if texts and device.compute_mode not in _ONE_PROCESS:
                gone.add(process.pid)
        devices.append(_without(device, gone) if gone else device)
    unmatched = [one.text for one in choices if one.text not in matched]
    return replace(inventory, devices=tuple(devices)), (*_risks(passed_over), *_kept(kept), *_unmatched(unmatched))


def _choice(text: str) -> _Choice:
    if text.startswith("<"):
        most_mib = parse_mib(text[1:], _OPTION)
        return _Choice(text, lambda process: process.memory_mib is not None and process.memory_mib < most_mib)
    if text.isascii() and text.isdigit():
        return _Choice(text, lambda process: str(process.pid) == text)
    if _USER.fullmatch(text):
        return _Choice(text, lambda process: process.user == text)
    hint = "give a pid, a user or an amount such as '<1GiB' (in quotes), or several with commas"
    raise UsageError(f"{_OPTION}: {text!r} is no process, no user and no amount", hint)


def _without(device: Device, gone: Collection[int]) -> Device:
    """Return a device as if these processes were not there; what the driver does not report of them stays used."""
    freed = sum(process.memory_mib or 0 for process in device.processes if process.pid in gone)
    used = device.memory_used_mib
    return replace(
        device,
        memory_used_mib=None if used is None else max(0, used - freed),
        processes=tuple(process for process in device.processes if process.pid not in gone),
    )


def _risks(passed_over: Sequence[_Found]) -> list[str]:
    """Return what is passed over, the largest first, and what that means."""
    if not passed_over:
        return []
    largest = sorted(passed_over, key=lambda found: -(found[1].memory_mib or 0))
    named = ", ".join(_named(device, process) for device, process in largest[:_MOST_NAMED])
    more = f" and {len(largest) - _MOST_NAMED} more" if len(largest) > _MOST_NAMED else ""
    risk = "whichever asks for memory last, they or the job, may find none and fail"
    return [f"{_OPTION} plans as if these were not there: {named}{more}; {risk}"]


def _kept(kept: Sequence[_Found]) -> list[str]:
    mode = "the compute mode of its device lets only one process in"
    return [f"{_OPTION} has no effect on {_named(device, process)}: {mode}" for device, process in kept[:_MOST_NAMED]]


def _unmatched(texts: Sequence[str]) -> list[str]:
    return [f"{_OPTION} {text} matches no process of others on the devices that may be used" for text in texts]


def _named(device: Device, process: DeviceProcess) -> str:
    amount = "an unknown amount" if process.memory_mib is None else format_mib(process.memory_mib)
    return f"pid {process.pid} of {process.user or 'an unknown user'} ({amount} of GPU {device.label})"
