"""gpusched inside a job of gpusched: one daemon, one set of leases, wherever the directories are named."""

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.foreground import line, running
from tests.cli.queue import GPUSCHED, ONE_GPU, jobs, state, until_state
from tests.patience import until

WAIT = "while [ ! -e {gate} ]; do sleep 0.05; done"


def daemons(command: Command) -> list[int]:
    """All daemons of this test, with whatever state directory: they have its home in their environment."""
    mark = f"\0HOME={command.home}\0".encode()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and mark in read(entry / "environ") and is_daemon(read(entry / "cmdline"))
    ]


def is_daemon(words: bytes) -> bool:
    return b"gpusched.daemon" in words.split(b"\0")


def read(path: Path) -> bytes:
    try:
        return b"\0" + path.read_bytes()
    except OSError:
        return b""


def named_by_variables(command: Command) -> None:
    """As the fixture has it."""


def named_by_relative_variables(command: Command) -> None:
    command.env |= {f"GPUSCHED_{name}_DIR": f"{name.lower()}" for name in ("STATE", "RUNTIME", "LEASE")}
    command.env |= {"GPUSCHED_STATE_DIR": "state", "GPUSCHED_CONFIG": "odd.toml"}
    (command.home / "odd.toml").write_text("most_jobs = 7\n")


def named_by_a_file(command: Command) -> None:
    command.env = {name: value for name, value in command.env.items() if not name.startswith("GPUSCHED_")}
    (command.home / "odd.toml").write_text('state_dir = "state"\n')
    command.env |= {"GPUSCHED_CONFIG": "odd.toml", "XDG_RUNTIME_DIR": str(command.home / "x")}
    (command.home / "x").mkdir()


def named_by_the_desktop(command: Command) -> None:
    command.env = {name: value for name, value in command.env.items() if not name.startswith("GPUSCHED_")}
    command.env |= {f"XDG_{name}": str(command.home / "s") for name in ("STATE_HOME", "RUNTIME_DIR")}
    command.state = command.home / "s" / "gpusched"
    (command.home / "s").mkdir()


@pytest.fixture
def here(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(command.home)
    return command


WAYS = [named_by_variables, named_by_relative_variables, named_by_a_file, named_by_the_desktop]


@pytest.mark.parametrize("detached", [False, True], ids=["run", "run -d"])
@pytest.mark.parametrize("named", WAYS)
def test_a_nested_run_waits(named: Callable[[Command], None], detached: bool, here: Command) -> None:
    """It waits for what the outer one holds, and with the same daemon."""
    named(here)
    words = ("run", *(("-d",) if detached else ()), *ONE_GPU, "--num-gpus", "1", "--", "sh", "-c", "echo ran; pwd")
    # whatever a script does to these, the directories of a job stay those of the job
    inner = f"(cd /; unset XDG_STATE_HOME XDG_RUNTIME_DIR; {shlex.join([*GPUSCHED, *words])}) > told 2>&1"

    outer = f"echo begun; {inner} & {WAIT.format(gate='go')}{'; wait' if detached else ''}"
    with running(here, "run", *ONE_GPU, "--num-gpus", "1", "--", "sh", "-c", outer) as process:
        assert line(process) == "begun"
        until(lambda: "run-1" in str(jobs(here).get("run-2", {}).get("why")), "the inner job waits")
        assert len(daemons(here)) == 1
        (here.home / "go").touch()
        until_state(here, "run-1", "succeeded")
        until_state(here, "run-2", "succeeded" if detached else "cancelled")

    assert len(daemons(here)) == 1
    if detached:
        assert (here.state / "jobs" / "run-2" / "logs" / "command.0.log").read_text().endswith("ran\n/\n")


def test_who_an_outer_replica_is_is_no_business_of_the_inner_one(here: Command) -> None:
    names = ["GPUSCHED_JOB", "GPUSCHED_REPLICA", "GPUSCHED_RUN_DIR", "GPUSCHED_STATE_DIR"]
    show = f"print(*map(__import__('os').environ.get, {names!r}))"
    inner = shlex.join([*GPUSCHED, "run", "--num-gpus", "0", "--", sys.executable, "-c", show])

    told = here.run("run", "--num-gpus", "0", "--", "sh", "-c", f"export GPUSCHED_KEYS=/outer; cd /; {inner}")

    assert told.stdout == f"run-2 command.0 {here.state}/jobs/run-2 {here.state}\n"


def test_a_daemon_that_a_launch_in_the_foreground_needs_outlives_it_with_its_jobs(here: Command) -> None:
    inner = shlex.join(
        [*GPUSCHED, "run", "-d", "--num-gpus", "0", "--", "sh", "-c", WAIT.format(gate=here.home / "go")]
    )
    workload = here.home / "outer.toml"
    script = f"cd /; {inner}; env > {here.home}/env"
    workload.write_text(f"name = 'outer'\n[roles.one]\ncommand = ['sh', '-c', {script!r}]\n")

    told = here.run("launch", str(workload), "--machine", "cpu")

    assert told.returncode == 0, told.stdout + told.stderr
    (daemon,) = daemons(here)
    until_state(here, "run-1", "running")
    environment = read(Path(f"/proc/{daemon}/environ"))
    assert b"\0GPUSCHED_JOB=" not in environment
    assert f"\0TMPDIR={here.state}".encode() not in environment
    (here.home / "go").touch()
    until_state(here, "run-1", "succeeded")
    assert daemons(here) == [daemon]


def test_a_job_outlives_the_one_that_its_daemon_was_started_in_when_that_daemon_is_gone(here: Command) -> None:
    """Its guard becomes a child of the outer job's supervisor then, as what flees from a replica does."""
    inner = shlex.join(
        [*GPUSCHED, "run", "-d", "--num-gpus", "0", "--", "sh", "-c", WAIT.format(gate=here.home / "go")]
    )
    workload = here.home / "outer.toml"
    script = f"cd /; {inner}; {WAIT.format(gate=here.home / 'end')}"
    workload.write_text(f"name = 'outer'\n[roles.one]\ncommand = ['sh', '-c', {script!r}]\n")

    with running(here, "launch", str(workload), "--machine", "cpu") as process:
        until(lambda: len(daemons(here)) == 1 and state(here, "run-1") == "running", "the inner job runs")
        os.kill(daemons(here)[0], signal.SIGKILL)
        until(lambda: not daemons(here), "the daemon has ended")
        (here.home / "end").touch()
        process.communicate()
        assert process.returncode == 0

    assert state(here, "run-1") == "running"
    (here.home / "go").touch()
    until_state(here, "run-1", "succeeded")


def test_a_launch_inside_a_launch_plans_beside_it(here: Command) -> None:
    inner = here.home / "inner.toml"
    share = "memory = { min = '10GiB' }"
    inner.write_text(f"name = 'inner'\n[roles.one]\ncommand = ['true']\n{share}\n")
    outer = here.home / "outer.toml"
    script = f"cd /; {shlex.join([*GPUSCHED, 'launch', str(inner), *ONE_GPU])} > {here.home}/told 2>&1; true"
    outer.write_text(f"name = 'outer'\n[roles.one]\ncommand = ['sh', '-c', {script!r}]\n{share}\n")

    told = here.run("launch", str(outer), *ONE_GPU)

    assert told.returncode == 0, told.stdout + told.stderr
    assert "are leased" in (here.home / "told").read_text()
    assert [job.name for job in (here.state / "jobs").iterdir()] == ["outer-1"]
