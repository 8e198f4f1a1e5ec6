"""`gpusched status` and the queue: jobs that wait are known to the daemon alone, and it may be away or hang."""

import json
import os
import re
import signal
import time

import pytest
from msgspec.structs import replace

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Inventory
from gpusched.model.status import JobState, JobStatus
from gpusched.render.status import status_lines
from tests.cli.command import Command
from tests.cli.queue import ONE_GPU, SLEEP, jobs, queue, until_state
from tests.patience import until


@pytest.fixture
def busy(command: Command) -> Command:
    """A machine with one simulated GPU: run-1 has it, run-2 waits for it, run-3 is held."""
    queue(command, *ONE_GPU, "--", "sleep", "1000")
    until_state(command, "run-1", "running")
    queue(command, *ONE_GPU, "--", "true")
    queue(command, "--hold", *SLEEP)
    until(lambda: "needs 1 whole GPU" in str(jobs(command)["run-2"]["why"]), "a pass has seen it")
    return command


def test_jobs_that_wait_are_shown_with_what_they_wait_for(busy: Command) -> None:
    rows = {line.split()[0]: line for line in busy.run("status").stdout.splitlines() if line.startswith("run-")}

    assert "running" in rows["run-1"]
    assert "queued" in rows["run-2"]
    assert "needs 1 whole GPU" in rows["run-2"]
    assert "held" in rows["run-3"]
    assert rows["run-3"].endswith("gpusched release run-3")
    assert busy.run("status", "--oneline").stdout.endswith("2 queued\n")


def test_a_program_is_told_of_them_as_ps_tells(busy: Command) -> None:
    told = json.loads(busy.run("status", "--json").stdout)

    assert {job["id"]: job["state"] for job in told["jobs"]} == {
        "run-1": "running",
        "run-2": "queued",
        "run-3": "queued",
    }
    assert "needs 1 whole GPU" in told["jobs"][1]["why"]
    assert told["queue_problem"] is None


def test_a_described_machine_shows_those_that_wait_for_it_alone(busy: Command) -> None:
    told = json.loads(busy.run("status", *ONE_GPU, "--json").stdout)

    assert [job["id"] for job in told["jobs"]] == ["run-1", "run-2"]


def test_a_sweep_that_has_ended_is_listed_with_what_came_of_it(command: Command) -> None:
    assert (
        command.run(
            "sweep", "-d", "--num-gpus", "0", "--param", "n=1..3", "--", "sh", "-c", "exit $(({n} % 2))"
        ).returncode
        == 0
    )
    assert command.run("wait", "run-1").returncode != 0

    listed = {job["id"]: job for job in json.loads(command.run("status", "--json").stdout)["jobs"]}

    assert {name: job["state"] for name, job in listed.items()} == {
        "run-1": "failed",
        "run-1[0]": "failed",
        "run-1[1]": "succeeded",
        "run-1[2]": "failed",
    }
    assert listed["run-1"]["array"]["failed"] == 2
    shown = command.run("status").stdout
    assert re.search(r"^run-1 +failed ", shown, re.MULTILINE)
    assert "run-1[" not in shown, "its members are in its row"


def test_without_a_daemon_the_jobs_that_run_are_shown_and_that_others_wait(busy: Command) -> None:
    assert busy.run("daemon", "stop").returncode == 0

    told = json.loads(busy.run("status", "--json").stdout)

    assert [(job["id"], job["state"]) for job in told["jobs"]] == [
        ("run-1", "running"),
        ("run-2", "queued"),
        ("run-3", "queued"),
    ]
    assert "gpusched daemon start" in told["jobs"][1]["why"]
    assert told["queue_problem"] is None


def test_a_daemon_that_hangs_costs_a_second_and_is_told_of(busy: Command) -> None:
    os.kill(busy.daemon(), signal.SIGSTOP)

    told = busy.run("status")

    assert told.returncode == 0
    assert "run-1" in told.stdout
    assert "of jobs that wait little is known: the daemon (process " in told.stdout


def test_in_a_pipe_nothing_is_cut_and_no_column_is_left_out(busy: Command) -> None:
    lines = busy.run("status").stdout.splitlines()
    why = json.loads(busy.run("ps", "run-2", "--json").stdout)["jobs"][0]["why"]

    head = next(line for line in lines if line.startswith("JOB"))
    assert head.split() == ["JOB", "STATE", "COUNTS", "RUNNING", "RESTARTS", "TIME", "PROGRESS"]
    assert any(line.startswith("run-2 ") and why.partition(" since ")[0] in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_in_a_terminal_what_a_job_waits_for_is_wrapped_and_restarts_and_time_stay(width: int) -> None:
    why = "needs 1583 MiB × 10 (actor); " + ", ".join(f"GPU {gpu} has 634 of 15837 MiB free" for gpu in range(4))
    queued = replace(_job(1, JobState.QUEUED), why=why)
    running = replace(_job(2, JobState.RUNNING), counts=(3, 10, 10, 10), machine="p3.8xlarge", simulated=True)
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=(0,))
    snapshot = Snapshot(inventory=inventory, jobs=(running, queued), leases=(), holders={}, time=time.time())

    lines = status_lines(snapshot, width, unicode=True)

    assert max(map(len, lines)) <= width
    head = next(line for line in lines if line.startswith("JOB"))
    assert head.split()[-2:] == ["RESTARTS", "TIME"] or head.split()[-3:-1] == ["RESTARTS", "TIME"]
    assert why in " ".join(line.strip() for line in lines)


def test_of_a_long_queue_the_first_are_shown_and_the_others_counted() -> None:
    jobs = [_job(number, JobState.QUEUED) for number in range(14)] + [_job(14, JobState.SUCCEEDED)]
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=(0,))
    snapshot = Snapshot(inventory=inventory, jobs=tuple(jobs), leases=(), holders={}, time=time.time())

    lines = status_lines(snapshot, 100, unicode=False)

    shown = [line.split()[0] for line in lines if "run-" in line]
    assert shown == [*(f"run-{number}" for number in range(10)), "run-14"]
    assert "and 4 more that wait: gpusched ps --why" in lines[-2]


def test_of_those_that_ended_lately_the_last_are_shown_and_a_job_with_its_name() -> None:
    jobs = [_job(0, JobState.RUNNING, "baseline"), *(_job(number, JobState.FAILED) for number in range(1, 9))]
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=(0,))
    snapshot = Snapshot(inventory=inventory, jobs=tuple(jobs), leases=(), holders={}, time=time.time())

    lines = status_lines(snapshot, 100, unicode=False)

    assert [line.split()[0] for line in lines if "run-" in line] == [f"run-{number}" for number in range(6)]
    assert "run-0 baseline" in " ".join(lines)
    assert "and 3 more that ended lately: gpusched ps" in lines[-1]


def _job(number: int, state: JobState, name: str | None = None) -> JobStatus:
    return JobStatus(
        id=f"run-{number}",
        name=name,
        workload="run",
        state=state,
        counts=(),
        replicas=(),
        run_dir="/none",
        why="needs more",
    )
