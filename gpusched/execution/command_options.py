"""Which devices a command asks for, and how many of them or how much of one, as a person wrote it."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.job import CommandRequest
from gpusched.units import parse_count, parse_fraction, parse_mib

__all__ = ["CommandOptions"]

_MOST: Final = 1024


class CommandOptions(NamedTuple):
    """What a person typed of a command's devices, as it was typed."""

    num_gpus: str | None = None
    memory: str | None = None
    fraction: str | None = None
    gpus: str | None = None
    exclude_gpus: str | None = None
    machine: str | None = None
    processes: str | None = None

    def need(self) -> CommandRequest:
        """Return what the command asks for; no amount in it: all devices that `--gpus` names. Raises UsageError."""
        need = self._amount()
        if self.processes is None:
            return need
        if need.devices == 0:
            raise UsageError("--processes counts those that use a device, and --num-gpus 0 is none", "leave one out")
        number = _count("--processes", self.processes, least=1, what="processes that use a device at once")
        if need.memory_mib is not None and need.memory_mib < number:
            raise UsageError(
                f"--memory {self.memory} is less than 1 MiB for each of {number} processes", "ask for more"
            )
        return replace(need, processes=number)

    def _amount(self) -> CommandRequest:
        self._require_one_amount()
        if self.memory is not None:
            return CommandRequest(memory_mib=parse_mib(self.memory, "--memory"))
        if self.fraction is not None:
            return CommandRequest(fraction=_fraction(self.fraction))
        if self.num_gpus is None:
            return CommandRequest() if self.gpus is not None else CommandRequest(devices=1)
        number = _count("--num-gpus", self.num_gpus, least=0, what="whole devices")
        if number == 0 and (self.gpus is not None or self.exclude_gpus is not None):
            option = "--gpus" if self.gpus is not None else "--exclude-gpus"
            raise UsageError(f"--num-gpus 0 is no device, and {option} names some", "leave one of them out")
        return CommandRequest(devices=number)

    def _require_one_amount(self) -> None:
        amounts = {"--num-gpus": self.num_gpus, "--memory": self.memory, "--fraction": self.fraction}
        given = [option for option, value in amounts.items() if value is not None]
        if len(given) > 1:
            hint = "give one: --num-gpus for whole devices, or --memory or --fraction for a part of one"
            raise UsageError(f"{' and '.join(given)} exclude each other", hint)


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
