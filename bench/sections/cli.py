"""Commands as whole processes: ours beside the import of typer alone, gpustat and nvitop, on the same four GPUs."""

import contextlib
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.fresh import ROOT
from bench.host import Daemon, running_daemon, until
from bench.section import Figure, Goal, Missing, Row, Section
from gpusched.control.messages import Submit
from gpusched.execution.submission import command_submission
from tests.stand_in.library import FOUR_V100, StandIn

__all__ = ["SECTION"]

_JOBS: Final = 6
_MACHINE: Final = "4x16GiB"
_BASE: Final = 'python -c "import typer"'


class Host:
    """Four GPUs of the stand-in driver library, and a daemon with a few jobs, while the section is measured."""

    def __init__(self) -> None:
        self._environ: Mapping[str, str] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have it while the block runs."""
        with tempfile.TemporaryDirectory() as folder:
            host = StandIn(Path(folder)).host(FOUR_V100)
            with running_daemon(host.env) as daemon:
                _submit(daemon)
                self._environ = daemon.environ
                yield

    def seconds(self, argv: Sequence[str], quick: bool, *, terminal: bool = False) -> Mapping[str, float]:
        """Run `python argv...` to its end, in a terminal or into a pipe that is read. Raises RuntimeError."""
        del quick
        began = time.perf_counter()
        code, told = (in_terminal if terminal else into_pipe)([sys.executable, *argv], self._environ)
        taken = time.perf_counter() - began
        if code != 0 or (not told and "-c" not in argv):
            raise RuntimeError(f"python {' '.join(argv)} ended with code {code} and said {told[-300:]!r}")
        return {"time": 1000 * taken}

    def peer(self, module: str, argv: Sequence[str], quick: bool) -> Mapping[str, float]:
        """Run another project's command in the same way. Raises Missing if it is not installed."""
        if find_spec(module) is None:
            raise Missing(f"{module} is not installed; it comes with the extra `dev`")
        return self.seconds(argv, quick)


def into_pipe(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command and return its exit status and what it printed."""
    told = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, check=False, timeout=60)
    return told.returncode, told.stdout or told.stderr


def in_terminal(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command whose output is a terminal, and return its exit status and what it printed."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        argv, cwd=ROOT, env={**environ, "TERM": "xterm-256color"}, stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        told = bytearray()
        with contextlib.suppress(OSError):  # that is how Linux tells that nobody writes to it any more
            while part := os.read(ours, 65536):
                told += part
        os.close(ours)
    return process.returncode, bytes(told)


def _submit(daemon: Daemon) -> None:
    """Give the daemon a few jobs, of which as many run as there are devices."""
    for _ in range(_JOBS):
        daemon.client.ask(Submit(job=command_submission(["sleep", "3600"], {"num_gpus": "1", "machine": _MACHINE}, {})))
    until(lambda: sum(job.started is not None for job in daemon.jobs(0)) == 4, "four jobs run")  # noqa: PLR2004


HOST: Final = Host()


def _ours(words: str, *, terminal: bool = False) -> Row:
    name = f"gpusched {words}" + ("" if words.endswith("--json") else ", terminal" if terminal else ", pipe")
    return Row(name, "ours", partial(HOST.seconds, ["-m", "gpusched", *words.split()], terminal=terminal))


def _at_most(row: str, times: float, what: str) -> Goal:
    return Goal(f"{row}: at most {times:.0f} times {what}", "time", row, _BASE, 1 / times)


def _ahead(peer: str) -> Goal:
    return Goal(f"gpusched status ahead of {peer}, same driver library", "time", "gpusched status, pipe", peer)


SECTION: Final = Section(
    name="cli",
    title="Commands, as whole processes",
    about=(
        "From exec to exit, on four GPUs of a stand-in for NVIDIA's driver library, with a daemon of six jobs. "
        "`terminal` draws tables with colours on a pty, `pipe` prints them plain. Importing typer, on which gpusched's "
        "command line stands, is the floor that it is compared with; gpustat and nvitop read the same library."
    ),
    figures={"time": Figure("time", "ms", "less")},
    rows=(
        Row(_BASE, "limit", partial(HOST.seconds, ["-c", "import typer"])),
        _ours("plan --json"),
        _ours("status --json"),
        _ours("ps --json"),
        _ours("plan"),
        _ours("plan", terminal=True),
        _ours("status"),
        _ours("status", terminal=True),
        _ours("ps"),
        _ours("ps", terminal=True),
        Row("gpustat", "other", partial(HOST.peer, "gpustat", ["-m", "gpustat"])),
        Row("nvitop -1", "other", partial(HOST.peer, "nvitop", ["-m", "nvitop", "-1"])),
    ),
    goals=(
        *(_at_most(f"gpusched {words} --json", 2, "the import of typer") for words in ("plan", "status", "ps")),
        *(_at_most(f"gpusched {words}, terminal", 3, "the import of typer") for words in ("plan", "status", "ps")),
        _ahead("gpustat"),
        _ahead("nvitop -1"),
    ),
    rounds=15,
    quick_rounds=3,
    takes_s=22,
    quick_takes_s=6,
    around=HOST.running,
)
