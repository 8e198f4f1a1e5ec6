"""The command lines of gpusched that the soak types, in one place: options that are renamed change here alone."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["GPUSCHED", "launch", "need", "run"]

GPUSCHED: Final = (sys.executable, "-m", "gpusched")


def need(what: str) -> list[str]:
    """Options for a need: `none`, `whole 2`, `memory 2GiB` or `fraction 0.4`."""
    kind, _, amount = what.partition(" ")
    if kind in ("none", "whole"):
        return ["--num-gpus", amount or "0"]
    return [f"--{kind}", amount]


def run(
    what: str, command: Sequence[str], *, name: str, detach: bool, options: Mapping[str, str | bool] | None = None
) -> list[str]:
    """`gpusched run` of a command with a need; `options` without their dashes, True for one without a value."""
    words = [*GPUSCHED, "run", *need(what), "--name", name, *_options(options or {})]
    return [*words, *(["-d", "--json"] if detach else []), "--", *command]


def launch(workload: str, *, name: str, detach: bool, options: Mapping[str, str | bool] | None = None) -> list[str]:
    """`gpusched launch` of a workload's file or name; in the foreground it takes no name."""
    words = [*GPUSCHED, "launch", workload, *_options(options or {})]
    return [*words, *(["--name", name, "-d", "--json"] if detach else [])]


def _options(options: Mapping[str, str | bool]) -> list[str]:
    return [
        word for key, value in options.items() for word in ([f"--{key}"] if value is True else [f"--{key}", str(value)])
    ]
