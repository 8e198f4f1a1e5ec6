"""What waits in a database that is gone, or was cut to nothing, is not gone without a word."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon


def waiting(daemon: Daemon) -> tuple[str, str]:
    """Return a job that has ended and one that is held, of a daemon that has ended since."""
    daemon.start()
    over, held = daemon.shell("true"), daemon.shell("true", hold=True)
    daemon.ended(over)
    daemon.command.run("daemon", "stop")
    assert daemon.process is not None
    daemon.process.wait()
    return over, held


def database(daemon: Daemon) -> Path:
    return daemon.state / "gpusched.db"


def test_an_empty_database_is_refused_where_jobs_wait_in_it(daemon: Daemon) -> None:
    _, held = waiting(daemon)
    os.truncate(database(daemon), 0)

    refused = daemon.command.run("daemon", "start")

    assert refused.returncode == 5
    assert f"{database(daemon)} is empty, and what {held} is to run stood there alone" in refused.stderr
    assert "move it and what begins with its name elsewhere" in refused.stderr
    assert database(daemon).stat().st_size == 0, "it is left as it was"


def test_an_empty_database_after_a_kill_is_refused_and_what_runs_goes_on(daemon: Daemon) -> None:
    daemon.start()
    runs, held = daemon.shell("exec sleep 1000"), daemon.shell("true", hold=True)
    daemon.wait(runs, JobState.RUNNING)
    daemon.kill()
    os.truncate(database(daemon), 0)

    refused = daemon.command.run("daemon", "start")
    assert refused.returncode == 5
    assert f"what {held} is to run stood there alone" in refused.stderr
    listed = {job["id"]: job["state"] for job in json.loads(daemon.command.run("ps", "--json").stdout)["jobs"]}
    assert listed == {runs: "running", held: "queued"}

    for left in daemon.state.glob("gpusched.db*"):
        moved(left)
    daemon.start()
    assert (daemon.wait(held).state, daemon.job(runs).state) == (JobState.LOST, JobState.RUNNING)
    assert daemon.command.run("stop", runs).returncode == 0
    assert daemon.wait(runs).state is JobState.CANCELLED


def test_where_only_jobs_that_run_stood_in_an_empty_database_a_new_one_has_them(daemon: Daemon) -> None:
    daemon.start()
    runs = daemon.shell("exec sleep 1000")
    daemon.wait(runs, JobState.RUNNING)
    daemon.kill()
    for left in daemon.state.glob("gpusched.db*"):
        os.truncate(left, 0)
    daemon.start()
    assert daemon.wait(runs, JobState.RUNNING).id == runs
    assert daemon.command.run("stop", runs).returncode == 0
    assert daemon.wait(runs).state is JobState.CANCELLED


def moved(database: Path) -> None:
    database.rename(database.with_name(f"elsewhere-{database.name}"))


@pytest.mark.parametrize("lose", [moved, Path.unlink])
def test_what_waited_in_a_database_that_was_removed_is_lost(daemon: Daemon, lose: Callable[[Path], object]) -> None:
    over, held = waiting(daemon)
    lose(database(daemon))
    daemon.start()

    assert daemon.wait(over).state is JobState.SUCCEEDED, "its directory says so"
    lost = daemon.wait(held)
    assert lost.state is JobState.LOST
    assert "submit it again" in str(lost.message)
    assert held in daemon.command.run("ps", "--all").stdout
    assert daemon.shell("true") not in (over, held)

    daemon.kill()
    daemon.start()
    assert daemon.job(held).state is JobState.LOST


def test_an_empty_database_is_a_new_one_where_no_job_waits(daemon: Daemon) -> None:
    over, held = waiting(daemon)
    (daemon.state / "jobs" / held).rmdir()
    os.truncate(database(daemon), 0)
    daemon.start()

    assert daemon.wait(over).state is JobState.SUCCEEDED
