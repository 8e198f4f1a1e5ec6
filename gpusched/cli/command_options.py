"""The options of `run` for devices, and for its end: COMMAND is the API's CommandArguments."""

from typing import Final

from gpusched.cli.options import Option, Options
from gpusched.cli.planning import PLAN

__all__ = ["COMMAND"]

COMMAND: Final[Options] = {
    "num_gpus": Option(
        "How many whole devices, which it sees as 0, 1, ...; 0 for none. [default: 1; with --gpus all of these]",
        metavar="N",
    ),
    "memory": Option("How much memory of one device it may use, such as 6GiB.", metavar="AMOUNT"),
    "fraction": Option("A part of one device, such as 0.4: two of 0.5 fit on one.", metavar="PART"),
    "processes": Option(
        "How many of its processes use a device at once: each has an equal part of the limit. [default: 1]",
        metavar="N",
    ),
    "gpus": Option(
        "Which devices: indices (0,2), MIG instances (0:2) or starts of uuids. With nothing else all of them, whole.",
        metavar="LIST",
    ),
    "exclude_gpus": PLAN["exclude_gpus"],
    "machine": Option(
        "A machine that is not here, whose devices are simulated; here: this host. [default: default_machine of the "
        "configuration, else here]",
        metavar="NAME|4x16GiB|FILE",
    ),
    "grace": Option(
        "How long it may save its work once it is asked to end, such as 30 (seconds), 90s or 5m. [default: 10s]",
        metavar="SPAN",
    ),
}
