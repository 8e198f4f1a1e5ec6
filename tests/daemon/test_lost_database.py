"""What waits in a database that is gone, or was cut to nothing, is not gone without a word."""

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
    assert "move it elsewhere" in refused.stderr
    assert database(daemon).stat().st_size == 0, "it is left as it was"


def moved(database: Path) -> None:
    database.rename(database.with_name("elsewhere"))


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
