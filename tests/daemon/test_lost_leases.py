"""A job that runs holds its share whatever becomes of the file of its lease, which it can remove itself."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusched.model.job import CommandRequest
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.stand_in.library import StandIn

MACHINE = "1x16GiB"
STAY = "exec sleep 1000"


def removed(lease: Path) -> None:
    lease.unlink()


def emptied(lease: Path) -> None:
    os.truncate(lease, 0)


def cut(lease: Path) -> None:
    os.truncate(lease, lease.stat().st_size - 5)


LOSSES = (removed, emptied, cut)


def part(fraction: float) -> CommandRequest:
    return CommandRequest(fraction=round(fraction * 10_000))


def lease_of(daemon: Daemon, job: str) -> Path:
    return (daemon.state / "jobs" / job / "lease").readlink()


@pytest.mark.parametrize("restarts", [False, True], ids=["", "after a restart of the daemon"])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_job_holds_its_share_without_the_file_of_its_lease(
    daemon: Daemon, lose: Callable[[Path], None], restarts: bool
) -> None:
    daemon.start()
    first = daemon.shell(STAY, need=part(0.2), machine=MACHINE)
    daemon.wait(first, JobState.RUNNING)
    lose(lease_of(daemon, first))
    if restarts:
        daemon.kill()
        daemon.start()
    second = daemon.shell(STAY, need=part(0.9), machine=MACHINE)
    third = daemon.shell(STAY, need=part(0.3), machine=MACHINE)
    until(lambda: first in str(daemon.job(second).why), "the second job waits for the first")
    assert daemon.job(second).state is JobState.QUEUED

    daemon.command.run("stop", first, third)
    daemon.wait(second, JobState.RUNNING)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_launch_plans_beside_a_job_without_the_file_of_its_lease(
    daemon: Daemon, lose: Callable[[Path], None]
) -> None:
    daemon.start()
    job = daemon.shell(STAY, need=part(0.9), machine=MACHINE)
    daemon.wait(job, JobState.RUNNING)
    lose(lease_of(daemon, job))
    toy = daemon.command.toy("for_ever.py")

    launched = daemon.command.run("launch", toy, "--machine", MACHINE, "--json")

    assert launched.returncode == 3, launched.stdout + launched.stderr
    assert "MiB are leased" in launched.stdout


def test_a_launch_plans_beside_a_job_that_has_neither_the_file_of_its_lease_nor_its_tmp(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.shell(STAY, need=part(0.9), machine=MACHINE)
    daemon.wait(job, JobState.RUNNING)
    removed(lease_of(daemon, job))
    (daemon.state / "jobs" / job / "tmp").rmdir()
    daemon.kill()

    launched = daemon.command.run("launch", daemon.command.toy("for_ever.py"), "--machine", MACHINE, "--json")

    assert launched.returncode == 3, launched.stdout + launched.stderr
    assert "MiB are leased" in launched.stdout


def test_the_daemon_counts_what_a_launch_holds_without_the_file_of_its_lease(daemon: Daemon) -> None:
    daemon.start()
    launch = daemon.command.start("launch", daemon.command.toy("for_ever.py"), "--machine", MACHINE)
    until(lambda: daemon.command.job().get("state") == "running", "the launch runs")
    until(lambda: [job.id for job in daemon.jobs()] == ["toy-1"], "the daemon has found it")
    removed(lease_of(daemon, "toy-1"))

    job = daemon.shell(STAY, need=part(0.9), machine=MACHINE)

    until(lambda: "toy-1" in str(daemon.job(job).why), "the job waits for the launch")
    launch.terminate()
    launch.communicate()
    daemon.wait(job, JobState.RUNNING)


@pytest.mark.parametrize("simulated_first", [True, False], ids=["simulated first", "real first"])
def test_a_job_of_a_saved_status_and_one_of_the_host_that_was_saved_are_not_in_each_others_way(
    simulated_first: bool, daemon: Daemon, stand_in: StandIn
) -> None:
    host = stand_in.host("gpus 1\n")
    daemon.env |= host.variables
    saved = daemon.command.home / "saved.json"
    saved.write_text(daemon.command.run("status", "--json").stdout)
    daemon.start()
    machines = (str(saved), None) if simulated_first else (None, str(saved))

    for machine in machines:
        daemon.wait(daemon.shell(STAY, need=part(0.9), machine=machine), JobState.RUNNING)
