"""A Python session of its own, as a notebook has one: what it is given to run, and what it prints."""

import contextlib
import subprocess
import sys
import textwrap

from tests.cli.command import Command
from tests.patience import PATIENCE_S


class Session:
    """Runs Python in child processes with the directories of `command`, from its home."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._started: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> "subprocess.Popen[str]":
        """Begin to run `code`, of which `import gpusched` is the first line."""
        argv = [sys.executable, "-c", f"import gpusched\n{textwrap.dedent(code)}"]
        pipe = subprocess.PIPE
        env, home = self._command.env, self._command.home
        self._started.append(subprocess.Popen(argv, env=env, cwd=home, stdout=pipe, stderr=pipe, text=True))
        return self._started[-1]

    def run(self, code: str) -> str:
        """Return what `code` prints. It fails on an error, and on anything on stderr."""
        printed, errors = self.start(code).communicate(timeout=PATIENCE_S)
        assert (self._started[-1].returncode, errors) == (0, ""), errors
        return printed

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()
