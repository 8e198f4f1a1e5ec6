"""The socket of a killed learner goes with its job, whoever of those above it was killed as well."""

import os
import signal
import sys
from pathlib import Path

import pytest

from gpusched.linux.processes import parent, start_time
from gpusched.model.status import JobState, JobStatus
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until
from tests.supervisor.specs import CHILDREN

ROOT = str(CHILDREN.parents[1])
LEARNER = (sys.executable, str(CHILDREN / "learner.py"))
HELD = """
import os, pathlib, time
from gpusched.channel import Learner
learner = Learner()
if os.fork() == 0:
    os.setsid()
    pathlib.Path(os.environ["GPUSCHED_RUN_DIR"], "held").write_text(str(os.getpid()))
time.sleep(600)
"""
"""What a learner forks without an exec holds its lock file, too."""


def files(daemon: Daemon) -> list[str]:
    """What lies in the runtime directory, but the daemon's own socket and lock."""
    return [path.name for path in daemon.settings.runtime_dir.glob("run-*")]


def learning(daemon: Daemon, *argv: str) -> JobStatus:
    """A job whose learner has its socket."""
    job = daemon.submit(*argv, environ={**daemon.env, "PYTHONPATH": ROOT})
    until(lambda: len(files(daemon)) == 2, "the learner listens")
    return daemon.job(job)


def victims(status: JobStatus, *names: str) -> list[int]:
    """The pids of those of the job; all are halted first, so that none can do anything for another."""
    supervisor = status.supervisor_pid or 0
    pids = {"learner": status.replicas[0].pid or 0, "supervisor": supervisor, "guard": parent(supervisor) or 0}
    found = [pids[name] for name in names]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def kill(pids: list[int]) -> None:
    for pid in reversed(pids):  # a child before its parent, whose death is its own
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "names", [("learner",), ("supervisor",), ("guard",), ("guard", "supervisor", "learner")], ids=" and ".join
)
def test_it_is_gone_when_the_job_is(daemon: Daemon, names: tuple[str, ...]) -> None:
    status = learning(daemon.start(), *LEARNER)

    kill(victims(status, *names))

    daemon.ended(status.id)
    until(lambda: files(daemon) == [], "no file is left")


def test_the_guard_removes_it_where_no_daemon_runs(daemon: Daemon) -> None:
    status = learning(daemon.start(), *LEARNER)
    daemon.kill()

    kill(victims(status, "supervisor", "learner"))

    until(lambda: files(daemon) == [], "no file is left")


def test_a_daemon_that_starts_later_removes_it(daemon: Daemon) -> None:
    status = learning(daemon.start(), *LEARNER)
    daemon.kill()
    kill(victims(status, "guard", "supervisor", "learner"))
    assert len(files(daemon)) == 2

    daemon.start()

    until(lambda: files(daemon) == [], "no file is left")
    assert daemon.job(status.id).state is JobState.LOST


def test_one_that_is_still_held_is_removed_when_it_no_longer_is(daemon: Daemon) -> None:
    status = learning(daemon.start(), sys.executable, "-c", HELD)
    holder = Path(status.run_dir) / "held"
    until(holder.exists, "a process holds it")

    kill(victims(status, "guard", "supervisor", "learner"))

    daemon.ended(status.id)
    assert len(files(daemon)) == 2
    os.kill(int(holder.read_text()), signal.SIGKILL)
    until(lambda: files(daemon) == [], "no file is left")


def test_a_launch_removes_it_when_guard_and_supervisor_were_killed(daemon: Daemon) -> None:
    toml = daemon.command.home / "toy.toml"
    toml.write_text(f"name = 'run'\n[roles.learner]\ncommand = {list(LEARNER)!r}\nrestart = {{ policy = 'never' }}\n")
    daemon.command.env["PYTHONPATH"] = ROOT
    with daemon.command.start("launch", str(toml), "--machine", "cpu") as launch:
        until(lambda: len(files(daemon)) == 2, "the learner listens")
        status = daemon.command.job("run-1")
        supervisor = status["supervisor_pid"]
        pids = [parent(supervisor) or 0, supervisor, status["replicas"][0]["pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        learner = pids.pop()
        kill([learner])
        until(lambda: start_time(learner) is None, "it holds nothing any more")
        kill(pids)
        launch.communicate(timeout=PATIENCE_S)

    assert files(daemon) == []
