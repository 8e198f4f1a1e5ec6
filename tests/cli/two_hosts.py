"""Two hosts that are one: each has a state, runtime and lease directory, and a workload's folder, of its own."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.cli.command import TOYS, Command
from tests.patience import PATIENCE_S, until
from tests.ports import free_port

SETTINGS = """
import msgspec

class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pace: int = 3
"""
WORKLOAD = """
[roles.learner]
command = ["{python}", "-m", "workloads.toy.feeding"]
[roles.actor]
count = 2
command = ["{python}", "-m", "workloads.toy.feeding"]
restart = { policy = "always", max = 1 }
[job]
leader = "learner"
stop_grace = 5
settings = "workloads.toy.options:Settings"
"""


class Host:
    """One of them, and what runs there; `within`: the words before each command, of what runs it elsewhere."""

    def __init__(self, home: Path, within: Sequence[str] = ()) -> None:
        home.mkdir()
        self.command = Command(home, within=within)
        self.home = home
        folder = home / "workloads" / "toy"
        folder.mkdir(parents=True)
        (folder / "workload.toml").write_text(WORKLOAD)
        (folder / "options.py").write_text(SETTINGS)
        shutil.copy(TOYS / "feeding.py", folder)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.command.run(*words, cwd=self.home)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return self.command.start(*words, cwd=self.home)

    def job(self, name: str = "toy-1") -> Path:
        return self.command.state / "jobs" / name

    def fed(self, name: str = "toy-1") -> dict[str, int]:
        """Who has fed the learner of a job of this host, each with its rank."""
        path = self.job(name) / "fed.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def status(self, name: str = "toy-1") -> dict[str, Any]:
        told = json.loads(self.run("status", "--json").stdout)
        return dict(next(job for job in told["jobs"] if job["id"] == name))


@contextlib.contextmanager
def two_hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Make them, and kill what is left on them."""
    hosts = Host(tmp_path / "one"), Host(tmp_path / "two")
    try:
        yield hosts
    finally:
        for host in hosts:
            host.command.end()


def next_line(process: "subprocess.Popen[str]") -> str:
    output: IO[str] = process.stdout  # type: ignore[assignment]  # it is a pipe
    return output.readline().rstrip("\n")


def until_said(process: "subprocess.Popen[str]", pattern: str) -> None:
    """Read what it prints up to a line with this in it."""
    output: IO[str] = process.stdout  # type: ignore[assignment]  # it is a pipe
    assert any(re.search(pattern, line) for line in output), f"it ended without a word of {pattern}"


def listening(host: Host, *words: str, at: str = "") -> tuple["subprocess.Popen[str]", list[str]]:
    """Launch a job that listens `at` an endpoint, and return the words that it says to run elsewhere."""
    endpoint = at or f"tcp://127.0.0.1:{free_port()}"
    launched = host.start("launch", "toy", "--listen", endpoint, "--procs", "1", *words)
    assert next_line(launched).startswith("toy-1: ")
    _, *to_run = shlex.split(next_line(launched))
    until(host.fed, "the learner has its own actor")
    return launched, to_run


def end(host: Host, *processes: "subprocess.Popen[str]", job: str = "toy-1") -> list[str]:
    """Have the learner of a job of this host end, and return what all have printed; their codes are then known."""
    (host.job(job) / "end").touch()
    return [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
