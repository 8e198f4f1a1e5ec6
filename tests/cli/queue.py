"""What the tests of the queue's commands share: jobs of cheap processes, and what `ps` says of them."""

import sys
from typing import Any

from tests.cli.command import Command
from tests.patience import until

GPUSCHED = (sys.executable, "-m", "gpusched")
ONE_GPU = ("--machine", "1x16GiB")
SLEEP = ("--num-gpus", "0", "--", "sleep", "1000")


def queue(command: Command, *words: str) -> str:
    """Queue a command with `run -d` and return its id."""
    told = command.run("run", "-d", *words)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout.strip()


def jobs(command: Command) -> dict[str, dict[str, Any]]:
    return command.jobs()


def state(command: Command, name: str) -> str:
    return str(jobs(command).get(name, {}).get("state"))


def until_state(command: Command, name: str, wanted: str) -> None:
    until(lambda: state(command, name) == wanted, f"{name} is {wanted}")
