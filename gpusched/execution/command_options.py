"""Which devices a command asks for, and how many of them or how much of one, as a person wrote it."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.job import CommandRequest
from gpusched.model.workload import memory_asked
from gpusched.units import parse_count, parse_fraction

__all__ = ["command_request"]

_MOST: Final = 1024


def command_request(given: Mapping[str, str]) -> CommandRequest:
    """Return what a command asks for, of `num_gpus`, `memory`, `fraction`, `gpus`, `exclude_gpus` and `processes`.

    They are as they were typed. No amount in it: all devices that `gpus` names. Raises UsageError.
    """
    need = _amount(given)
    if "processes" not in given:
        return need
    if need.devices == 0:
        raise UsageError("--processes counts those that use a device, and --num-gpus 0 is none", "leave one out")
    number = _count("--processes", given["processes"], least=1, what="processes that use a device at once")
    if need.memory_mib is not None and need.memory_mib < number:
        raise UsageError(
            f"--memory {given['memory']} is less than 1 MiB for each of {number} processes", "ask for more"
        )
    return replace(need, processes=number)


def _amount(given: Mapping[str, str]) -> CommandRequest:
    amounts = [f"--{name.replace('_', '-')}" for name in ("num_gpus", "memory", "fraction") if name in given]
    if len(amounts) > 1:
        hint = "give one: --num-gpus for whole devices, or --memory or --fraction for a part of one"
        raise UsageError(f"{' and '.join(amounts)} exclude each other", hint)
    if "memory" in given:
        least, first = memory_asked(given["memory"], "--memory")
        return CommandRequest(memory_mib=least or None, first_mib=first)
    if "fraction" in given:
        return CommandRequest(fraction=_fraction(given["fraction"]))
    if "num_gpus" not in given:
        return CommandRequest() if "gpus" in given else CommandRequest(devices=1)
    number = _count("--num-gpus", given["num_gpus"], least=0, what="whole devices")
    if number == 0 and ("gpus" in given or "exclude_gpus" in given):
        option = "--gpus" if "gpus" in given else "--exclude-gpus"
        raise UsageError(f"--num-gpus 0 is no device, and {option} names some", "leave one of them out")
    if number == 0 and "ignore_foreign" in given:
        message = "--num-gpus 0 is no device, and --ignore-foreign is of processes on devices"
        raise UsageError(message, "leave one of them out")
    return CommandRequest(devices=number)


def _count(option: str, text: str, *, least: int, what: str) -> int:
    """Read the value of `option`, a number of `what`. Raises UsageError."""
    names = "; --gpus names devices" if "," in text else ""
    hint = f"{option} is a number of {what}, from {least} to {_MOST}{names}"
    try:
        number = parse_count(text, option)
    except UsageError as error:
        raise UsageError(error.message, hint) from None
    if not least <= number <= _MOST:
        raise UsageError(f"{option}: {text!r} is too {'few' if number < least else 'many'}", hint)
    return number


def _fraction(text: str) -> int:
    try:
        return parse_fraction(float(text), "--fraction")
    except (ValueError, UsageError):
        hint = "give a number above 0 and at most 1, such as 0.4"
        raise UsageError(f"--fraction: {text!r} is not a fraction", hint) from None
