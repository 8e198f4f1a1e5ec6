"""A job can put anything in the place of its own files. Every command answers all the same, and other jobs go on."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gpusched.model.status import JobState
from tests.cli.command import Command
from tests.daemon.daemons import Daemon
from tests.daemon.users import User, space_for_all, why_not
from tests.odd_files import KINDS, put
from tests.patience import until
from tests.supervisor.leasing import NOBODY

FILES: Final = (
    "spec.json",
    "status.json",
    "events.jsonl",
    "progress.jsonl",
    "orders.jsonl",
    "guard.lock",
    "lease",
    "logs/command.0.log",
    "logs/supervisor.log",
    "logs",
    "ready",
    "tmp",
)
ALL: Final = "all of them"
NONE: Final = "none of them"
MOST_MIB: Final = 300
JOB: Final = ("run", "-d", "--json", "--num-gpus", "0", "--", "sh", "-c", "echo hello; exec sleep 1000")


@pytest.fixture
def somebody(request: pytest.FixtureRequest) -> Iterator[Command]:
    """Whose jobs they are: another user where root runs the tests and could read any file."""
    unreadable = request.node.callspec.params["kind"] == "unreadable"
    if unreadable and os.geteuid() == 0 and (reason := why_not()):
        pytest.skip(reason)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        base.chmod(0o755)
        if unreadable and os.geteuid() == 0:
            (base / "space").mkdir()
            space = stack.enter_context(space_for_all(base / "space"))
            command: Command = User(NOBODY, base / "home", {}, space=space, umask=0o077)
        else:
            command = Command(base)
        stack.callback(command.end)
        yield command


def answer(command: Command, *arguments: str) -> Any:
    done = command.run(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def submitted(command: Command) -> str:
    done = command.run(*JOB)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["id"])


def states(command: Command) -> dict[str, str]:
    return {job["id"]: job["state"] for job in answer(command, "ps", "--all")["jobs"]}


def peak_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def daemon_pid(command: Command) -> int:
    return int((command.state / "daemon.lock").read_text())


def spoil(command: Command, kind: str, job: str, files: tuple[str, ...]) -> None:
    for file in files:
        place = command.state / "jobs" / job / file
        put(kind, place)
        if isinstance(command, User):
            os.lchown(place, command.uid, command.uid)


def check(command: Command, kind: str, jobs: dict[str, str]) -> None:
    """Every command answers, and no memory is filled."""
    for file, job in jobs.items():
        spoil(command, kind, job, FILES if file == ALL else () if file == NONE else (file,))
    found = states(command)
    assert found.keys() == set(jobs.values())
    assert {found[job] for file, job in jobs.items() if file != ALL} == {"running"}
    assert {job["id"] for job in answer(command, "status")["jobs"]} == set(jobs.values())
    for file in ("status.json", "logs/command.0.log", "logs", ALL):
        assert command.run("logs", jobs[file], "-n", "2").returncode in (0, 4, 5)
    assert command.run("logs", jobs[NONE]).stdout.endswith("hello\n")
    assert peak_mib(daemon_pid(command)) < MOST_MIB


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_answers_whatever_a_job_puts_in_the_place_of_its_files(somebody: Command, kind: str) -> None:
    names = (*FILES, ALL, NONE)
    jobs = {name: submitted(somebody) for name in names}
    until(lambda: set(states(somebody).values()) == {"running"}, "all jobs run")
    beside = somebody.job(jobs[NONE])["replicas"][0]["pid"]

    check(somebody, kind, jobs)
    os.kill(daemon_pid(somebody), signal.SIGKILL)
    assert somebody.run("daemon", "start").returncode == 0
    check(somebody, kind, jobs)

    done = somebody.run("stop", *(job for file, job in jobs.items() if file != NONE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert somebody.run("wait", *(job for file, job in jobs.items() if file != NONE)).returncode == 1
    assert states(somebody)[jobs[NONE]] == "running"
    assert somebody.job(jobs[NONE])["replicas"][0]["pid"] == beside, "its neighbours are nothing to it"


def test_a_job_whose_orders_cannot_be_written_is_killed_at_once(daemon: Daemon) -> None:
    daemon.start()
    for _ in range(5):  # two signals of one kind may become one, or not
        job = daemon.shell("trap '' TERM; echo deaf; while :; do sleep 1; done", stop_grace_s=600.0)
        until(lambda: daemon.command.run("logs", job).stdout.endswith("deaf\n"), "it ignores SIGTERM")  # noqa: B023
        put("directory", daemon.state / "jobs" / job / "orders.jsonl")
        daemon.command.run("stop", "--kill", job)
        over = daemon.wait(job)
        assert over.state is JobState.CANCELLED
        assert "its supervisor did not obey" not in str(over.message), "it was asked twice, and killed the job itself"


def test_what_is_odd_is_said_where_the_jobs_message_is_and_the_supervisor_writes_its_status_again(
    daemon: Daemon,
) -> None:
    daemon.start()
    job = daemon.shell("exec sleep 1000")
    supervisor = daemon.wait(job, JobState.RUNNING).supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    put("pipe", daemon.state / "jobs" / job / "status.json")
    ps = {one["id"]: one for one in answer(daemon.command, "ps")["jobs"]}[job]
    status = {one["id"]: one for one in answer(daemon.command, "status")["jobs"]}[job]
    for one in (ps, status):
        assert one["state"] == "running"
        assert f"{job}/status.json: not a file of ours, but a pipe" in one["message"]
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: daemon.job(job).supervisor_pid == supervisor, "the status is there again")
