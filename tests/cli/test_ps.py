"""`gpusched ps`: what a person and a program are told of the jobs."""

import getpass
import json
from itertools import pairwise

import pytest

from tests.cli.command import Command
from tests.cli.queue import GPUSCHED, ONE_GPU, SLEEP, jobs, queue, until_state
from tests.cli.terminal import Terminal
from tests.patience import until


def test_with_no_job_it_says_so(command: Command) -> None:
    command.daemon()

    assert command.run("ps").stdout == "no job runs or waits, and none has ended lately\n"
    assert json.loads(command.run("ps", "--json").stdout) == {"jobs": []}


def test_those_that_live_come_first_then_those_that_ended_lately(command: Command) -> None:
    for code in (0, 3):
        command.run("run", "--num-gpus", "0", "--", "sh", "-c", f"exit {code}")
    queue(command, *SLEEP)
    queue(command, "--hold", "--name", "later", *SLEEP)
    until_state(command, "run-3", "running")

    lines = command.run("ps").stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["ID", "run-3", "run-4", "run-2", "run-1"]
    assert "running" in lines[1]
    assert "later" in lines[2]
    assert "held" in lines[2]
    assert "failed: code 3" in lines[3]
    assert lines[3].endswith("sh -c 'exit 3'")
    assert "succeeded" in lines[4]


def test_only_what_is_asked_for_is_shown(command: Command) -> None:
    for _ in range(3):
        command.run("run", "--num-gpus", "0", "--", "true")

    assert command.run("ps", "--ended", "1").stdout.count("run-") == 1
    assert command.run("ps", "--ended", "0").stdout.startswith("no job")
    assert command.run("ps", "--all").stdout.count("run-") == 3
    assert [line.split()[0] for line in command.run("ps", "run-2").stdout.splitlines()] == ["ID", "run-2"]
    assert command.run("ps", "--all", "--ended", "1").returncode == 2


def test_who_asked_for_a_job_and_where_and_how_long_it_waited_and_ran_is_in_the_json(command: Command) -> None:
    command.run("run", "--num-gpus", "0", "--", "sh", "-c", "sleep 0.2", cwd=command.home)
    queue(command, "--hold", *SLEEP)
    waits, ran = json.loads(command.run("ps", "--json").stdout)["jobs"]

    assert ran["user"] == waits["user"] == getpass.getuser()
    assert ran["cwd"] == str(command.home)
    assert ran["ran_s"] == ran["ended"] - ran["started"] > 0.1
    assert ran["waited_s"] == ran["started"] - ran["created"]
    assert waits["waited_s"] > 0
    assert waits["ran_s"] is None


def test_an_unknown_job_is_code_4(command: Command) -> None:
    command.daemon()
    told = command.run("ps", "run-9", "--json")

    assert told.returncode == 4
    assert json.loads(told.stdout)["error"]["code"] == "not-found"


def test_why_gives_the_reason_of_every_job_that_waits(command: Command) -> None:
    queue(command, *ONE_GPU, "--", "sleep", "1000")
    until_state(command, "run-1", "running")
    queue(command, *ONE_GPU, "--", "true")
    queue(command, "--num-gpus", "0", "--after", "run-1", "--", "true")
    queue(command, "--num-gpus", "0", "--at", "+2h", "--", "true")
    until(lambda: "run-1" in str(jobs(command)["run-2"]["why"]), "a pass has seen it")

    lines = command.run("ps", "--why").stdout.splitlines()
    reasons = {line.split()[0]: after.strip() for line, after in pairwise(lines)}

    assert "needs 1 whole GPU" in reasons["run-2"]
    assert "run-1" in reasons["run-2"]
    assert "run-1" in reasons["run-3"]
    assert reasons["run-4"]


@pytest.mark.parametrize("columns", [80, 120])
def test_in_a_terminal_it_has_colours_and_keeps_to_the_width(columns: int, command: Command) -> None:
    queue(command, "--num-gpus", "0", "--", "sh", "-c", "sleep 1000", *["word"] * 60, "end")
    until_state(command, "run-1", "running")
    window = Terminal([*GPUSCHED, "ps"], command.env, columns=columns)
    try:
        shown = window.see(" end")
    finally:
        window.close()

    assert "\x1b[32mrunning\x1b[0m" in shown
    row = shown.splitlines()[1]
    assert "..." in row
    assert len(row.replace("\x1b[1m", "").replace("\x1b[32m", "").replace("\x1b[0m", "")) == columns
