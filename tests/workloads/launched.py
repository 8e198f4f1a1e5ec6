"""`gpusched launch` of a workload as a person has it: real processes, in a state directory of the test's own."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpusched.runtime import READY_DIRECTORY, ready_name
from tests.cli.command import Command

__all__ = ["Launched", "Launches", "progress_in"]

ROOT = Path(__file__).parents[2]
WHOLE_TEST_S = 1140.0
"""All waits of one test together, which starts TensorFlow several times: less than pytest lets it take, 1200 s."""


def progress_in(folder: Path) -> list[dict[str, Any]]:
    """What was reported so far; the last line may be half written."""
    path = folder / "progress.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


class Launched:
    """One launch, whose results are in `folder`. `settings` that are not as by default become options.

    It has no GPU, wherever the test runs. Nothing is waited for after `until`.
    """

    def __init__(self, home: Path, until: float, workload: str, actors: int | None, settings: msgspec.Struct) -> None:
        home.mkdir(mode=0o700)
        self._until = until
        self.command = Command(home)
        self._job = f"{workload}-1"
        self.folder = self.command.state / "jobs" / self._job
        options = ["--machine=cpu", *([] if actors is None else [f"--procs={actors}"])]
        for name, value in msgspec.structs.asdict(settings).items():
            if value != getattr(type(settings)(), name):
                options.append(f"--{name.replace('_', '-')}={value}")
        self._process = self.command.start("launch", workload, *options, cwd=ROOT)

    def succeeds(self) -> None:
        said, _ = self._process.communicate(timeout=self._left_s)
        assert self._process.returncode == 0, said

    def stops_when_asked(self) -> None:
        """Ctrl-C, as in a terminal."""
        self._process.send_signal(signal.SIGINT)
        said, _ = self._process.communicate(timeout=self._left_s)
        assert self._process.returncode == 130, said

    @property
    def _left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()

    def replica(self, name: str) -> dict[str, object]:
        replicas = self.command.job(self._job).get("replicas", [])
        return next((replica for replica in replicas if replica["name"] == name), {})

    def progress(self) -> list[dict[str, Any]]:
        return progress_in(self.folder)

    def replicas_told(self) -> set[str]:
        """The names of which the progress has said something."""
        return {name for line in self.progress() for name in line.get("replicas", {})}

    def waits_for(self, file: Path) -> None:
        self.waits_until(file.exists, f"{file.name} to be there")

    def waits_until(self, holds: Callable[[], bool], what: str) -> None:
        while not holds():
            assert self._process.poll() is None, f"the launch ended before this held: {what}"
            assert self._left_s, f"waited in vain for: {what}"
            time.sleep(0.02)

    def begins(self, name: str, attempt: int = 0) -> None:
        """Wait until that attempt of a replica has begun its work."""
        self.waits_for(self.folder / READY_DIRECTORY / ready_name(name, attempt))

    def kill(self, name: str) -> None:
        """Kill it once it has begun its work."""
        self.begins(name)
        os.kill(int(str(self.replica(name)["pid"])), signal.SIGKILL)


class Launches:
    """Those of one test, below `home`, whose path is short: sockets lie there."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._until = time.monotonic() + WHOLE_TEST_S
        self._made: list[Launched] = []

    def start(self, workload: str, actors: int | None, settings: msgspec.Struct) -> Launched:
        self._made.append(Launched(self._home / str(len(self._made)), self._until, workload, actors, settings))
        return self._made[-1]

    def end(self) -> None:
        """Kill every process that is left."""
        for one in self._made:
            one.command.end()
