"""The command line as a person has it: a real process, with its own state and runtime directories."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpusched.api.queue import find_jobs
from gpusched.settings import load_settings
from tests.patience import DRIVER_PATIENCE_S, PATIENCE_S

TOYS = Path(__file__).parent / "toys"
ALL = 100_000


class Command:
    """`gpusched` with its state under `home`. `within`: the words before it, of what runs it elsewhere."""

    def __init__(self, home: Path, env: Mapping[str, str] | None = None, within: Sequence[str] = ()) -> None:
        self.argv = [*within, sys.executable, "-m", "gpusched"]
        self.home = home
        self.state = home / "state"
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUSCHED_", "XDG_", "VIRTUAL_ENV", "CONDA_"))
        }
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):  # a person's, which would choose devices for a test
            self.env.pop(name, None)
        self.env |= {"GPUSCHED_STATE_DIR": str(self.state), "GPUSCHED_RUNTIME_DIR": str(home / "run")}
        self.env |= {"GPUSCHED_DRIVER_PATIENCE": str(DRIVER_PATIENCE_S)}
        self.env |= {"GPUSCHED_LEASE_DIR": str(home / "leases"), "HOME": str(home), **(env or {})}

    def run(self, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.argv, *arguments],
            capture_output=True,
            text=True,
            env=self.env,
            timeout=PATIENCE_S,
            check=False,
            **options,
        )

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.argv, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
            **options,
        )

    def toy(self, script: str, *, actors: int = 2, job: str = "", memory: bool = True) -> str:
        """Write a workload whose replicas all run that script, and return its path."""
        needs = ('memory = { min = "2GiB", share = 0.75 }', 'memory = { min = "512MiB" }') if memory else ("", "")
        command = f'command = ["{{python}}", "-S", "{TOYS / script}"]'
        text = f"""
            name = "toy"
            [roles.learner]
            {command}
            {needs[0]}
            restart = {{ policy = "never" }}
            [roles.actor]
            count = {actors}
            {command}
            {needs[1]}
            [job]
            leader = "learner"
            stop_grace = 2
            {job}
        """
        path = self.home / "workload.toml"
        path.write_text(text)
        return str(path)

    def job(self, name: str = "toy-1") -> dict[str, Any]:
        """What status.json says of a job; empty before it is there."""
        path = self.state / "jobs" / name / "status.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def jobs(self, *names: str) -> dict[str, dict[str, Any]]:
        """What `ps --all --json` prints, by id, but without a process: a wait asks often."""
        found = find_jobs(names, ALL, settings=load_settings(self.env)).jobs
        return {job.id: json.loads(msgspec.json.encode(job)) for job in found}

    def running(self) -> list[int]:
        """All processes that have this test's mark in their environment, but those that have just been asked to go."""
        return [
            pid
            for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
            if self._is_ours(pid)
        ]

    def daemon(self) -> int:
        """The daemon that runs, started if there is none."""
        lines = (
            "import os",
            "from gpusched.control.client import connect_or_start",
            "from gpusched.settings import load_settings",
            "connect_or_start(load_settings(os.environ))",
        )
        argv = [sys.executable, "-c", "\n".join(lines)]
        subprocess.run(argv, env=self.env, check=True, timeout=PATIENCE_S)
        return int((self.state / "daemon.lock").read_text())

    def end(self) -> None:
        """Kill every process that this test has left, the daemon among them."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self.running()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _is_ours(self, pid: int) -> bool:
        mark = f"GPUSCHED_STATE_DIR={self.state}".encode()
        hidden = f"\0GPUSCHED_RUN_DIR={self.state}".encode()
        try:
            environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return pid != os.getpid() and (b"\0" + mark in environment or hidden in environment)
