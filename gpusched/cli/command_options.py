"""The options of `run` for devices, as annotated types."""

from typing import Annotated

from gpusched.cli.options import Option

__all__ = ["Fraction", "Gpus", "Machine", "MemoryLimit", "NumGpus", "Processes"]

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
    str | None, Option("How much memory of one device it may use, such as 6GiB.", ("--memory",), metavar="AMOUNT")
]
Fraction = Annotated[str | None, Option("A part of one device, such as 0.4: two of 0.5 fit on one.", metavar="PART")]
Processes = Annotated[
    str | None,
    Option(
        "How many of its processes use a device at once: each has an equal part of the limit. [default: 1]",
        metavar="N",
    ),
]
Machine = Annotated[
    str | None,
    Option(
        "A machine that is not here, whose devices are simulated; here: this host. [default: default_machine of the "
        "configuration, else here]",
        metavar="NAME|4x16GiB|FILE",
    ),
]
