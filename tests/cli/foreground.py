"""What the tests of `gpusched run` in the foreground share: commands that need no device, with pipes."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tests.cli.command import Command
from tests.cli.queue import GPUSCHED

FREE = ("run", "--num-gpus", "0")
SLOW_START: Final = re.compile(r"^gpusched: \S+ waits( for its turn|: .*)$\n?", re.MULTILINE)
"""What `gpusched run` writes where the daemon takes longer than a moment to start it, as on a busy host."""


def shell(text: str) -> tuple[str, ...]:
    return (*FREE, "--", "sh", "-c", text)


def python(text: str) -> tuple[str, ...]:
    return (*FREE, "--", sys.executable, "-S", "-c", text)


@contextlib.contextmanager
def running(
    command: Command, *words: str, stdin: int | None = None, process_group: int | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """The command in the background, with its streams in pipes."""
    pipe, argv = subprocess.PIPE, [*GPUSCHED, *words]
    with subprocess.Popen(
        argv, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env=command.env, process_group=process_group
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def but_for_the_wait(stderr: str | bytes) -> str:
    """Return what was written of all else than the wait for the turn."""
    return SLOW_START.sub("", stderr if isinstance(stderr, str) else stderr.decode())


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
