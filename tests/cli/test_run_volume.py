"""Much goes through `gpusched run` in a pipeline: not a byte is lost or changed."""

import shlex
import subprocess

import pytest

from tests.cli.command import Command
from tests.cli.foreground import FREE
from tests.cli.queue import GPUSCHED
from tests.patience import PATIENCE_S


def gives(command: Command, script: str, zeros: int) -> bool:
    """Whether a script ends well and writes that many bytes, all of them 0."""
    expected = f"cmp - <(head -c {zeros} /dev/zero)"
    argv = ["bash", "-c", f"set -o pipefail; {script} | {expected}"]
    return subprocess.run(argv, env=command.env, timeout=PATIENCE_S, check=False).returncode == 0


@pytest.mark.slow
def test_100_mb_of_input_and_2_gb_of_output_arrive_as_they_were(command: Command) -> None:
    run = shlex.join([*GPUSCHED, *FREE, "--"])

    assert gives(command, f"head -c {100 << 20} /dev/zero | {run} cat", 100 << 20)
    assert gives(command, f"{run} head -c {2 << 30} /dev/zero", 2 << 30)
    assert not gives(command, f"{run} head -c 99 /dev/zero", 100)
