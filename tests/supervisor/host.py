"""Real jobs for the tests: started in a directory of their own, found again by a marker in their environment."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpusched.execution.directory import JobDirectory, create
from gpusched.execution.read_jobs import read_job
from gpusched.execution.spec import JobSpec
from gpusched.execution.start import await_supervisor, prepare, spawn, stop
from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaState, ReplicaStatus
from tests.patience import PATIENCE_S, until
from tests.supervisor.specs import CHILDREN, job


class Job:
    """One real job: what its files say, which processes it has, and how to disturb it."""

    def __init__(self, directory: JobDirectory, marker: str) -> None:
        self.directory, self._marker = directory, marker
        self.supervisor = 0

    @property
    def status(self) -> JobStatus:
        return read_job(self.directory.path)

    def replica(self, name: str) -> ReplicaStatus:
        (found,) = [one for one in self.status.replicas if one.name == name]
        return found

    def events(self, subject: str) -> list[str]:
        lines = [json.loads(line) for line in self.directory.events.read_text().splitlines()]
        return [line["after"] for line in lines if line["subject"] == subject]

    def pids(self) -> list[int]:
        """Every process of the job that still runs, wherever it fled to: the marker is in its environment."""
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and self._marker.encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return sorted(found)

    def guard(self) -> int:
        return int(Path(f"/proc/{self.supervisor}/stat").read_text().rpartition(")")[2].split()[1])

    def wait_running(self, name: str, *, restarts: int = 0) -> int:
        """Wait until the replica runs after that many restarts, and return its pid."""

        def runs() -> bool:
            one = self.replica(name)
            return one.state is ReplicaState.RUNNING and one.restarts == restarts

        until(runs, f"{name} runs after {restarts} restarts")
        return self.replica(name).pid or 0

    def wait_output(self, name: str, text: str, times: int = 1) -> None:
        until(lambda: self.output(name).count(text) >= times, f"{name} says {text!r}")

    def output(self, name: str) -> str:
        path = self.directory.log(name)
        return path.read_text() if path.exists() else ""

    def wait_ended(self) -> JobStatus:
        until(lambda: self.status.state in JOB_TERMINAL, "the job has ended")
        return self.status

    def wait_gone(self, seconds: float = PATIENCE_S) -> None:
        until(lambda: not self.pids(), f"none of {self.pids()} is left", seconds)

    def stop(self) -> None:
        stop(self.status)

    def kill_all(self) -> None:
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def start(directory: JobDirectory, spec: JobSpec, environ: Mapping[str, str]) -> int:
    """The pid of the job's supervisor, once it has written its first status."""
    return await_supervisor(directory, spawn(directory, prepare(directory, spec), environ), spec)


class Host:
    """Starts jobs, and ends what is left of them."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._jobs: list[Job] = []
        self._launchers: list[subprocess.Popen[bytes]] = []

    def prepare(self, *replicas: ReplicaSpec, leader: str | None = None, **changes: object) -> Job:
        """A job that is ready to be started. `changes` are other fields of its spec."""
        directory = create(self.state, "snake")
        spec = msgspec.structs.replace(job(*replicas, job=directory.path.name, leader=leader), **changes)
        directory.write_spec(spec)
        self._jobs.append(Job(directory, f"MARKER={uuid.uuid4()}"))
        return self._jobs[-1]

    def start(self, *replicas: ReplicaSpec, leader: str | None = None, **changes: object) -> Job:
        """A job that has been started."""
        one = self.prepare(*replicas, leader=leader, **changes)
        one.supervisor = start(one.directory, one.directory.read_spec(), self.environ(one))
        return one

    def launch(self, one: Job, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a prepared job from another process, which the job must not outlive."""
        argv = [sys.executable, str(CHILDREN / "launch.py"), str(one.directory.path), *arguments]
        environ = {**self.environ(one), "PYTHONPATH": str(CHILDREN.parent.parent)}
        self._launchers.append(subprocess.Popen(argv, env=environ))
        until(lambda: one.status.supervisor_pid is not None, "the supervisor has started")
        one.supervisor = one.status.supervisor_pid or 0
        return self._launchers[-1]

    def attach(self, one: Job, *arguments: str, terminal: int | None = None) -> subprocess.Popen[bytes]:
        """Start a prepared job as an attached command, with pipes, or in the foreground of a terminal."""
        argv = [sys.executable, str(CHILDREN / "attach.py"), str(one.directory.path), *arguments]
        environ = {**self.environ(one), "PYTHONPATH": str(CHILDREN.parent.parent)}
        if terminal is None:
            pipe = subprocess.PIPE
            launcher = subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0)
        else:
            launcher = subprocess.Popen(
                [sys.executable, str(CHILDREN / "shell.py"), *argv],
                env=environ,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
        self._launchers.append(launcher)
        return launcher

    def environ(self, one: Job) -> dict[str, str]:
        return {**os.environ, "MARKER": one._marker.partition("=")[2], "NOTIFY_SOCKET": "/nowhere"}

    def end(self) -> None:
        for launcher in self._launchers:
            launcher.kill()
            launcher.wait()
        for one in self._jobs:
            one.kill_all()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
