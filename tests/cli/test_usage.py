"""`gpusched usage`, as it is typed: on a stand-in host whose driver shows what processes take."""

import json
import os
import signal
import time
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
        return [one["pid"] for each in command.jobs(job).values() for one in each["replicas"] if one["pid"]]

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


class Curve:
    """The memory of a job's process as the driver shows it from moment to moment, in MiB."""

    def __init__(self, command: Command, host: StandInHost) -> None:
        assert command.run("run", "-d", "--memory", "6GiB", "--name", "curve", "--", "sleep", "600").returncode == 0
        self._command, self._host, self.pid = command, host, pid_of(command, "curve")
        self._energy, self._now, self._events = 1_000_000, "", ""

    def takes(self, mib: int, further: str = "") -> None:
        self._now = f"process 0 C {self.pid} {mib}\n{further}"
        self._shows()

    def is_polled(self) -> None:
        """Wait until the energy has been polled twice: the second reading began after what is shown now."""
        for _ in range(2):
            before = rows(self._command, "curve")[0]["energy_j"]
            until(lambda before=before: self._rises_from(before), "it is polled", every_s=0.2)  # type: ignore[misc]

    def _rises_from(self, before: float | None) -> bool:
        self._energy += 1000
        self._shows()
        (found,) = gpusched.api.usage.usage("curve", settings=load_settings(self._command.env))
        return found.energy_j is not None and found.energy_j > (before or 0.0)

    def _shows(self) -> None:
        self._events += "event 0 xid 43\n"  # a program's own fault, upon which the daemon polls at once
        self._host.change(f"{HOST}{self._now}set 0 energy {self._energy}\n{self._events}")

    def recorded(self) -> int | None:
        (found,) = rows(self._command, "curve")
        mib: int | None = found["device_mib"]
        return mib


@pytest.mark.slow
def test_the_peak_rises_with_what_is_polled_and_stays_when_memory_is_freed_at_the_end(
    here: Command, host: StandInHost
) -> None:
    curve = Curve(here, host)
    for mib in (500, 1300, 4100):
        curve.takes(mib)
        curve.is_polled()
        assert curve.recorded() == mib
    curve.takes(200)
    curve.is_polled()
    assert curve.recorded() == 4100
    here.run("stop", "curve")
    here.run("wait", "curve")
    assert curve.recorded() == 4100


@pytest.mark.slow
def test_a_process_that_is_killed_on_its_way_up_has_its_last_step_or_the_one_before(
    here: Command, host: StandInHost
) -> None:
    curve = Curve(here, host)
    for mib in (500, 1300):
        curve.takes(mib)
        curve.is_polled()
    curve.takes(4100)
    os.kill(curve.pid, signal.SIGKILL)
    assert here.run("wait", "curve").returncode == 1
    assert curve.recorded() in {1300, 4100}


@pytest.mark.slow
def test_a_spike_between_two_polls_is_recorded_or_not_and_with_accounting_it_always_is(
    here: Command, host: StandInHost
) -> None:
    curve = Curve(here, host)
    curve.takes(500)
    curve.is_polled()
    curve.takes(4100)
    time.sleep(0.2)  # the length of the spike: no condition to wait for
    curve.takes(600)
    curve.is_polled()
    assert curve.recorded() in {600, 4100}
    curve.takes(700, f"set 0 accounting 1\naccounted 0 {curve.pid} 5200\n")
    curve.is_polled()
    assert curve.recorded() == 5200
    here.run("stop", "curve")
    here.run("wait", "curve")
    assert curve.recorded() == 5200
