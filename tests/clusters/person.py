"""A person at the login host of a cluster, with a workload of their own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.command import Command


class Person:
    """Types commands. The workload `mine` is the one that `gpusched new` writes."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.run("new", "mine")

    def run(self, *words: str) -> str:
        """Return what a command prints that succeeds."""
        done = self.command.run(*words, cwd=self.command.home)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def launch(self, engine: str, *words: str, nodes: int = 3) -> str:
        """Queue the workload on nodes of the cluster, with 8 actors, and return the job's id."""
        spread = ("--engine", engine, "--nodes", str(nodes), "--procs", "8", "--patience", "9s")
        return self.run("launch", "-d", "mine", *spread, *words).split()[0]

    def gives_devices(self, host: Mapping[str, str]) -> None:
        """Have the workload's processes need devices, those of a stand-in library; `host` is what names it."""
        file = self.command.home / "workloads" / "mine" / "workload.toml"
        file.write_text(file.read_text().replace("# memory =", "memory ="))
        self.command.env |= host

    def job(self, name: str) -> dict[str, Any]:
        """What ps says of a job."""
        return dict(json.loads(self.run("ps", name, "--json"))["jobs"][0])

    def directory(self, name: str) -> Path:
        return self.command.state / "jobs" / name

    def running(self, name: str) -> dict[str, str]:
        """Return on which nodes the replicas of a job are that have begun their work."""
        return {
            one["name"]: one["node"] for one in self.job(name)["replicas"] if one["ready"] and one["state"] == "running"
        }

    def step(self, name: str) -> int:
        """Return how far the learner of a job is."""
        return int((self.job(name)["progress"] or {}).get("step", 0))
