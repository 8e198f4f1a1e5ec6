"""Jobs that are planned over a process of others, before a real daemon with the stand-in of NVML."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn


class Occupied:
    """A host whose one device a process of others has filled, and a daemon there."""

    def __init__(self, home: Path, stand_in: StandIn) -> None:
        self.foreign = subprocess.Popen(["sleep", "600"])
        self.pid = str(self.foreign.pid)
        device = stand_in.host(f"gpus 1\nprocess 0 C {self.pid} 15000\nset 0 used 15000\n")
        library = {name: device.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")}
        self.command = Command(home, library | {"TOY_EXPECTS": "2"})
        assert self.command.run("daemon", "start").returncode == 0

    def job(self, job: str) -> Any:
        return json.loads(self.command.run("ps", "--json", job).stdout)["jobs"][0]

    def end(self) -> None:
        self.command.end()
        self.foreign.kill()
        self.foreign.wait()


@pytest.fixture
def occupied(tmp_path: Path, stand_in: StandIn) -> Iterator[Occupied]:
    one = Occupied(tmp_path, stand_in)
    yield one
    one.end()


@pytest.mark.parametrize("need", [("--num-gpus", "1"), ("--memory", "6GiB"), ("--fraction", "0.5")])
def test_a_job_starts_over_a_process_for_which_another_one_waits(occupied: Occupied, need: tuple[str, str]) -> None:
    waits = occupied.command.run("run", "-d", *need, "--", "true").stdout.strip()
    until(lambda: f"held by pid {occupied.pid}" in (occupied.job(waits)["why"] or ""), "it waits")
    assert occupied.command.run("stop", waits).returncode == 0
    queued = occupied.command.run("run", "-d", *need, "--ignore-foreign", occupied.pid, "--", "true")
    assert queued.returncode == 0
    assert f"plans as if these were not there: pid {occupied.pid} of " in queued.stderr
    assert "may find none and fail" in queued.stderr
    job = queued.stdout.strip()
    until(lambda: occupied.job(job)["state"] == "succeeded", "it ran")


def test_a_command_in_the_foreground_runs_and_a_value_that_matches_nothing_is_said(occupied: Occupied) -> None:
    run = occupied.command.run("run", "--ignore-foreign", f"{occupied.pid},mallory", "--", "echo", "it runs")
    assert (run.returncode, run.stdout) == (0, "it runs\n")
    assert "--ignore-foreign mallory matches no process of others" in run.stderr
    waits = occupied.command.start("run", "--ignore-foreign", "mallory", "--", "true")
    until(lambda: len(json.loads(occupied.command.run("ps", "--json").stdout)["jobs"]) == 2, "it is queued")
    assert occupied.job("run-2")["state"] == "queued"
    assert f"held by pid {occupied.pid}" in occupied.job("run-2")["why"]
    waits.terminate()
    assert "mallory matches no process" in waits.communicate(timeout=PATIENCE_S)[0]


def test_plan_and_launch_plan_over_it_and_name_the_risk(occupied: Occupied) -> None:
    workload = occupied.command.toy("until_all_told.py", actors=1)
    assert occupied.command.run("plan", "--workload", workload).returncode == 3
    planned = occupied.command.run("plan", "--workload", workload, "--ignore-foreign", "<16GiB")
    assert planned.returncode == 0, planned.stderr
    assert f"pid {occupied.pid} of " in planned.stdout
    as_json = occupied.command.run("plan", "--workload", workload, "--ignore-foreign", occupied.pid, "--json")
    assert any("may find none and fail" in line for line in json.loads(as_json.stdout)["warnings"])
    launched = occupied.command.run("launch", workload, "--ignore-foreign", occupied.pid)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert f"pid {occupied.pid} of " in launched.stdout + launched.stderr


def test_what_it_cannot_mean_is_refused_before_anything_is_queued(occupied: Occupied) -> None:
    for arguments in (("run", "-d"), ("run",), ("plan",)):
        rest = ("--", "true") if arguments[0] == "run" else ()
        refused = occupied.command.run(*arguments, "--ignore-foreign", "a b", *rest)
        assert refused.returncode == 2
        assert "--ignore-foreign: 'a b' is no process, no user and no amount" in refused.stderr
    assert json.loads(occupied.command.run("ps", "--json").stdout)["jobs"] == []
