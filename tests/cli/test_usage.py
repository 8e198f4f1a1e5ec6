"""`gpusched usage`, as it is typed: on a stand-in host whose driver shows what processes take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpusched.api.usage
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.patience import until
from tests.stand_in.library import StandIn, StandInHost

HOST = "gpus 2\n"


@pytest.fixture
def host(stand_in: StandIn) -> StandInHost:
    return stand_in.host(HOST)


@pytest.fixture
def here(tmp_path: Path, host: StandInHost) -> Iterator[Command]:
    library = host.variables
    command = Command(tmp_path, library)
    yield command
    command.end()


def rows(command: Command, *words: str) -> Any:
    return json.loads(command.run("usage", *words, "--json").stdout)["usage"]


def pid_of(command: Command, job: str) -> int:
    def pids() -> list[int]:
        jobs = json.loads(command.run("ps", job, "--json").stdout)["jobs"]
        return [one["pid"] for each in jobs for one in each["replicas"] if one["pid"]]

    until(pids, f"{job} runs")
    return pids()[0]


def test_what_was_given_and_what_was_used_while_it_runs_and_after_its_end(here: Command, host: StandInHost) -> None:
    here.run("run", "-d", "--memory", "6GiB", "--name", "big", "--", "sleep", "600")
    here.run("sweep", "-d", "--array", "1-2", "--num-gpus", "0", "--", "true")
    here.run("wait", "run-2")
    process = f"process 0 C {pid_of(here, 'big')} 1900\n"
    host.change(f"{HOST}{process}set 0 energy 1000000\n")
    until(lambda: rows(here, "big")[0]["device_mib"] == 1900, "it was polled")
    host.change(f"{HOST}{process}set 0 energy 8200000\n")
    until(lambda: rows(here, "big")[0]["energy_j"], "it was polled again")
    (running,) = rows(here, "big")
    assert (running["energy_j"], running["energy_attributed"]) == (7200.0, False)
    assert (running["state"], running["ended"], running["share_mib"]) == ("running", None, 6594)
    assert running["used_part"] == pytest.approx(1900 / 6594)
    assert "run-1" in here.run("usage").stdout.splitlines()[1], "what leaves the most unused comes first"
    here.run("stop", "big")
    here.run("wait", "big")
    (over,) = rows(here, "big")
    assert (over["device_mib"], over["state"], over["device"]) == (1900, "cancelled", running["device"])
    assert over["cpu_s"] is not None

    head, big, sweep, _, total = here.run("usage").stdout.splitlines()
    assert "GIVEN     USED  OF IT" in head
    assert "6.4 GiB  1.9 GiB   29 %   0 %  2.0 Wh" in big
    assert sweep.split()[:2] == ["run-2", "2"]
    assert total.startswith("given ")
    assert total.endswith("(29 %)")
    assert [row["job"] for row in rows(here, "run-2")] == ["run-2[1]", "run-2[2]"]
    assert here.run("usage", "run-9").returncode == 4
    assert here.run("usage", "--since", "soon").returncode == 2

    report = gpusched.api.usage.usage(settings=load_settings(here.env))
    assert len(report) == 3
    assert repr(report).splitlines()[0] == head
    assert "6.4 GiB" in report._repr_html_()


def test_where_no_job_has_run_nothing_is_shown(here: Command) -> None:
    shown = here.run("usage")
    assert (shown.returncode, shown.stdout) == (0, "no job has run in this time\n")
