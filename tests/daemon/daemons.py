"""Real daemons in temporary directories, and what a client of theirs can see and do."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusched.control.client import Client, control_socket, listener
from gpusched.control.messages import Answer, Await, Jobs, ListJobs, Ping, Pong, Request, Submit, Submitted
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.model.workload import Restart, Role, Workload
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until

NOTHING = CommandRequest(devices=0)


class Daemon:
    """The daemon of a state directory of its own. `command` runs the command line beside it, `env` is for both."""

    def __init__(self, home: Path, env: Mapping[str, str] | None = None) -> None:
        self.command = Command(home, env)
        self.env = self.command.env
        self.settings = load_settings(self.env)
        self.state = self.settings.state_dir
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    @property
    def pid(self) -> int:
        """Whoever listens, however it was started; 0 if nobody does."""
        return listener(control_socket(self.settings)) or 0

    @property
    def log(self) -> str:
        path = self.state / "daemon.log"
        return path.read_text() if path.exists() else ""

    def start(self) -> "Daemon":
        """Start it as a child, and return when it answers."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.state / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "gpusched.daemon"], env=self.env, stderr=log)
        until(lambda: self.pid or (self.process and self.process.poll() is not None), "the daemon listens")
        assert self.process.poll() is None, self.log
        return self

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, wherever it stands."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait()

    def client(self) -> Client:
        """Return a link of its own."""
        self._clients.append(Client(self.settings))
        return self._clients[-1]

    def ask(self, request: Request) -> Answer:
        with Client(self.settings) as client:
            return client.ask(request, PATIENCE_S)

    def pong(self) -> Pong:
        answer = self.ask(Ping())
        assert isinstance(answer, Pong)
        return answer

    def submission(self, *argv: str, need: CommandRequest = NOTHING, **changes: Any) -> Submission:
        role = Role(name="command", command=argv, restart=Restart(policy="never"))
        workload = Workload(name="run", roles=(role,), stop_grace_s=changes.pop("stop_grace_s", 2.0))
        wishes: dict[str, Any] = {
            "workload": workload,
            "command": need,
            "cwd": "/tmp",
            "environ": self.env,
            "python": "{python}",
            "xla_variable": "XLA_CLIENT_MEM_FRACTION",
        }
        return Submission(**(wishes | changes))

    def submit(self, *argv: str, need: CommandRequest = NOTHING, **changes: Any) -> str:
        """Put a command into the queue and return the job's id. `changes` are other fields of the submission."""
        answer = self.ask(Submit(job=self.submission(*argv, need=need, **changes)))
        assert isinstance(answer, Submitted)
        return answer.id

    def shell(self, script: str, **changes: Any) -> str:
        return self.submit("sh", "-c", script, **changes)

    def jobs(self, *ids: str) -> tuple[JobStatus, ...]:
        answer = self.ask(ListJobs(ids=ids))
        assert isinstance(answer, Jobs)
        return answer.jobs

    def job(self, job_id: str) -> JobStatus:
        return self.jobs(job_id)[0]

    def wait(self, job_id: str, *states: JobState) -> JobStatus:
        """Wait until the job is in one of these states, or with none named until it has ended."""
        wanted = frozenset(states) or JOB_TERMINAL
        until(lambda: self.job(job_id).state in wanted, f"{job_id} is {sorted(wanted)}")
        return self.job(job_id)

    def ended(self, *ids: str) -> tuple[JobStatus, ...]:
        """Wait as a command does until the daemon says that all have ended, supervisors and guards included."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(Await(ids=ids, wait_s=1.0))
            assert isinstance(answer, Jobs)
            if all(job.state in JOB_TERMINAL for job in answer.jobs):
                return answer.jobs
            assert time.monotonic() < deadline, answer.jobs

    def end(self) -> None:
        """Leave no process behind."""
        for client in self._clients:
            client.close()
        while pids := self.command.running():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.poll()
            time.sleep(0.01)
        if self.process is not None:
            self.process.wait()
