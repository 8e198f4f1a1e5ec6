"""Jobs that have a zygote, for the tests: what it imports and what replicas run are texts, in a directory of theirs."""

import json
import sys
from pathlib import Path
from typing import Any

from gpusched.model.plan import Replica, ReplicaSpec
from tests.patience import until
from tests.supervisor.host import Host, Job
from tests.supervisor.specs import CHILDREN

EXECUTED = {"PYTHONUTF8": "0"}
"""An environment that only an interpreter of its own can have."""


class Preloading:
    """A directory with modules and programs, and jobs that run there."""

    def __init__(self, host: Host, directory: Path) -> None:
        self._host, self.directory = host, directory
        self.write("preloaded", "")
        (directory / "tell_all.py").write_text((CHILDREN / "tell_all.py").read_text())

    def write(self, module: str, text: str) -> str:
        (self.directory / f"{module}.py").write_text(text)
        return module

    def python(
        self,
        name: str,
        *words: str,
        env: dict[str, str] | None = None,
        cpus: tuple[int, ...] = (),
        device: str | None = None,
    ) -> ReplicaSpec:
        """A replica that runs Python in the directory."""
        role, _, rank = name.rpartition(".")
        what = Replica(name=name, role=role, rank=int(rank), cpus=cpus, device_uuid=device)
        return ReplicaSpec(
            replica=what, argv=(sys.executable, *words), env={} if env is None else env, cwd=str(self.directory)
        )

    def start(self, *replicas: ReplicaSpec, preload: tuple[str, ...] = ("preloaded",), **changes: Any) -> Job:
        return self._host.start(*replicas, preload=preload, **changes)

    def told(self, name: str) -> dict[str, object]:
        """What the replica told that was given the file `name`."""
        path = self.directory / name
        until(path.exists, f"{name} is written")
        told: dict[str, object] = json.loads(path.read_text())
        return told


def zygote(one: Job) -> int:
    """The pid of the job's zygote."""
    for pid in one.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"gpusched.zygote.server" in words:
            return pid
    raise AssertionError("there is no zygote")


def steps(one: Job) -> list[str]:
    """What the job's events say of its zygote."""
    if not one.directory.events.exists():
        return []
    lines = [json.loads(line) for line in one.directory.events.read_text().splitlines()]
    return [f"{line['after']}: {line['message']}" for line in lines if line["subject"] == "zygote"]


def wait_step(one: Job, words: str) -> str:
    """Wait until the events tell such a step of the zygote, and return it."""

    def found() -> list[str]:
        return [step for step in steps(one) if words in step]

    until(lambda: bool(found()), f"the zygote's events tell {words!r}")
    return found()[0]
