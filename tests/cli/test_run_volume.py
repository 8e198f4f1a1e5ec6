"""Much goes through `gpusched run` in a pipeline: not a byte is lost or changed."""

import hashlib
import shlex
import subprocess

import pytest

from tests.cli.command import Command
from tests.cli.foreground import FREE
from tests.cli.queue import GPUSCHED
from tests.patience import PATIENCE_S


def zeros(mib: int) -> str:
    counted = hashlib.sha256()
    for _ in range(mib):
        counted.update(bytes(1 << 20))
    return counted.hexdigest()


def piped(command: Command, script: str) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script} | sha256sum"],
        capture_output=True,
        text=True,
        env=command.env,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout.split()[0]


@pytest.mark.slow
def test_100_mb_of_input_and_2_gb_of_output_arrive_as_they_were(command: Command) -> None:
    run = shlex.join([*GPUSCHED, *FREE, "--"])

    assert piped(command, f"head -c {100 << 20} /dev/zero | {run} cat") == zeros(100)
    assert piped(command, f"{run} head -c {2 << 30} /dev/zero") == zeros(2048)
