"""The ways of starting many processes that use TensorFlow, each to be run in a fresh process of its own."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Protocol, Self

from bench.fresh import ROOT
from bench.peers.ready import SOCKET, be_ready
from bench.peers.zygote import Zygote

__all__ = ["WAYS", "Way"]

_WORKLOAD: Final = ROOT / "bench" / "workloads" / "ready" / "workload.toml"
_PATIENCE_S: Final = 60.0


class Way(AbstractContextManager["Way"], Protocol):
    """Starts processes that tell the socket it was made with that they are ready.

    `belongs`: the process that starts them is part of what the user gets, so that its memory counts. `starts_again`:
    what it has made for the first processes serves for the next.
    """

    belongs: bool
    starts_again: bool

    def start(self, count: int) -> None:
        """Start so many; they need not be ready when this returns."""

    def join(self) -> None:
        """Wait until those that were started have ended, which they have been told."""


class Original:
    """The original's: a `multiprocessing.Process` each, forked from a parent that has imported nothing."""

    belongs = True
    starts_again = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._started: list[BaseProcess] = []
        self._processes: Any = multiprocessing.get_context("fork")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()

    def start(self, count: int) -> None:
        """Start so many, each of which imports TensorFlow for itself."""
        for _ in range(count):
            process = self._processes.Process(target=be_ready, args=(self._path,))
            process.start()
            self._started.append(process)

    def join(self) -> None:
        """Wait for them."""
        for process in self._started:
            process.join(_PATIENCE_S)
        self._started.clear()


class Forkserver(Original):
    """The standard library's own way: a server forks them that has imported TensorFlow, and what each would import."""

    starts_again = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tensorflow", __name__, "bench.peers.gather"])


class Each:
    """A new interpreter each, as most launchers do."""

    belongs = True
    starts_again = False

    def __init__(self, path: str) -> None:
        self._environ = {**os.environ, SOCKET: path}
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()

    def start(self, count: int) -> None:
        """Start so many interpreters."""
        argv = [sys.executable, "-m", "bench.peers.ready"]
        self._started += [subprocess.Popen(argv, cwd=ROOT, env=self._environ) for _ in range(count)]

    def join(self) -> None:
        """Wait for them."""
        for process in self._started:
            process.wait(_PATIENCE_S)


class Command:
    """`gpusched launch`, with a state directory of its own."""

    belongs = False
    starts_again = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack = ExitStack()
        self._launch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpusched-bench-")))
        return self

    def __exit__(self, *_: object) -> None:
        if self._launch is not None:
            self._launch.terminate()
            self._launch.wait(_PATIENCE_S)
        self._stack.close()

    def start(self, count: int) -> None:
        """Type the command: one learner and the rest actors."""
        argv = [sys.executable, "-m", "gpusched", "launch", str(_WORKLOAD), "--procs", str(count - 1)]
        environ = {**os.environ, **own_state(self._home), SOCKET: self._path}
        with (self._home / "launch.log").open("wb") as log:
            self._launch = subprocess.Popen(argv, cwd=ROOT, env=environ, stdout=log, stderr=log)

    def join(self) -> None:
        """Wait for the end of the command. Exits with what it printed if it failed."""
        if self._launch is not None and self._launch.wait(_PATIENCE_S):
            sys.exit((self._home / "launch.log").read_text())


def own_state(home: Path) -> Mapping[str, str]:
    """Return the variables that keep what gpusched writes in a directory of its own."""
    own = {
        "GPUSCHED_STATE_DIR": home / "state",
        "GPUSCHED_RUNTIME_DIR": home / "run",
        "GPUSCHED_LEASE_DIR": home / "leases",
    }
    return {name: str(path) for name, path in own.items()} | {"GPUSCHED_CONFIG": ""}


WAYS: Final[Mapping[str, Callable[[str], Way]]] = {
    "original": Original,
    "forkserver": Forkserver,
    "each": Each,
    "command": Command,
    "zygote": Zygote,
}
