"""What `run` asks for: which devices, and how many of them or how much of one."""

from typing import Annotated, Final, NamedTuple

from gpusched.cli.options import Option
from gpusched.errors import UsageError
from gpusched.model.job import CommandNeed
from gpusched.units import parse_count, parse_fraction, parse_mib

__all__ = ["CommandWish", "Fraction", "Gpus", "Machine", "MemoryLimit", "NumGpus"]

_MOST_DEVICES: Final = 1024

NumGpus = Annotated[
    str | None,
    Option(
        "How many whole devices, which it sees as 0, 1, ...; 0 for none. [default: 1; with --gpus all of these]",
        ("--num-gpus",),
        metavar="N",
    ),
]
Gpus = Annotated[
    str | None,
    Option(
        "Which devices: indices (0,2), MIG instances (0:2) or starts of uuids. With nothing else all of them, whole.",
        metavar="LIST",
    ),
]
MemoryLimit = Annotated[
    str | None, Option("So much memory of one device: its limit, as in 6GiB.", ("--memory",), metavar="AMOUNT")
]
Fraction = Annotated[str | None, Option("A part of one device, such as 0.4: two of 0.5 fit on one.", metavar="PART")]
Machine = Annotated[
    str | None, Option("A machine that is not here, whose devices are simulated.", metavar="NAME|4x16GiB|FILE")
]


class CommandWish(NamedTuple):
    """What a person typed of a command's devices, as it was typed."""

    num_gpus: str | None = None
    memory: str | None = None
    fraction: str | None = None
    gpus: str | None = None
    exclude_gpus: str | None = None
    machine: str | None = None

    def need(self) -> CommandNeed:
        """Return what the command asks for; nothing in it: all devices that `--gpus` names. Raises UsageError."""
        self._require_one_amount()
        if self.memory is not None:
            return CommandNeed(memory_mib=parse_mib(self.memory, "--memory"))
        if self.fraction is not None:
            return CommandNeed(fraction=_fraction(self.fraction))
        if self.num_gpus is None:
            return CommandNeed() if self.gpus is not None else CommandNeed(devices=1)
        number = _devices(self.num_gpus)
        if number == 0 and (self.gpus is not None or self.exclude_gpus is not None):
            option = "--gpus" if self.gpus is not None else "--exclude-gpus"
            raise UsageError(f"--num-gpus 0 is no device, and {option} names some", "leave one of them out")
        return CommandNeed(devices=number)

    def _require_one_amount(self) -> None:
        amounts = {"--num-gpus": self.num_gpus, "--memory": self.memory, "--fraction": self.fraction}
        given = [option for option, value in amounts.items() if value is not None]
        if len(given) > 1:
            hint = "give one: --num-gpus for whole devices, or --memory or --fraction for a part of one"
            raise UsageError(f"{' and '.join(given)} exclude each other", hint)


def _devices(text: str) -> int:
    names = "; --gpus names devices" if "," in text else ""
    hint = f"--num-gpus is a number of whole devices, from 0 to {_MOST_DEVICES}{names}"
    try:
        number = parse_count(text, "--num-gpus")
    except UsageError as error:
        raise UsageError(error.message, hint) from None
    if number > _MOST_DEVICES:
        raise UsageError(f"--num-gpus: {text!r} is too many", hint)
    return number


def _fraction(text: str) -> int:
    try:
        return parse_fraction(float(text), "--fraction")
    except (ValueError, UsageError):
        hint = "give a number above 0 and at most 1, such as 0.4"
        raise UsageError(f"--fraction: {text!r} is not a fraction", hint) from None
