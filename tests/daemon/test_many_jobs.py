"""A daemon that has seen thousands of jobs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusched.storage.store import Store
from tests.cli.command import Command
from tests.patience import until
from tests.storage.records import ended

JOBS = 1203
REPLICAS = 4
MOST_GROWTH_KIB = 2048


@pytest.fixture
def veteran(tmp_path: Path) -> Iterator[Command]:
    """The command line of a person whose daemon runs, and saw many jobs end before it was started."""
    command = Command(tmp_path)
    store = Store.open(command.state / "gpusched.db")
    with store.transaction():
        for number in range(1, JOBS + 1):
            store.add(ended(number, REPLICAS))
    store.close()
    subprocess.run([sys.executable, "-m", "gpusched.daemon", "--background", "2"], env=command.env, check=True)
    until(lambda: command.run("daemon", "status").returncode == 0, "the daemon answers")
    yield command
    command.end()


def test_ps_all_lists_every_job_that_ended_once_and_the_latest_first(veteran: Command) -> None:
    told = json.loads(veteran.run("ps", "--all", "--json").stdout)
    assert [job["id"] for job in told["jobs"]] == [f"run-{number}" for number in range(JOBS, 0, -1)]


def test_ps_lists_as_many_jobs_that_ended_as_were_asked_for(veteran: Command) -> None:
    for last in (0, 3, 500, 501):
        told = json.loads(veteran.run("ps", "--ended", str(last), "--json").stdout)
        assert [job["id"] for job in told["jobs"]] == [f"run-{number}" for number in range(JOBS, JOBS - last, -1)]


def peak_kib(command: Command) -> int:
    status = Path(f"/proc/{int((command.state / 'daemon.lock').read_text())}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def test_ps_all_of_every_job_makes_the_daemon_hardly_larger(veteran: Command) -> None:
    veteran.run("ps", "--ended", "20")
    before = peak_kib(veteran)
    veteran.run("ps", "--all")
    assert peak_kib(veteran) - before < MOST_GROWTH_KIB


def test_a_new_job_gets_a_number_above_all_that_ended_though_their_directories_are_gone(veteran: Command) -> None:
    assert veteran.run("run", "--detach", "--hold", "--machine", "1x16GiB", "--", "true").stdout == f"run-{JOBS + 1}\n"
