"""A wall clock that is stepped under a daemon and its jobs: by an hour, by years, forwards and back."""

import shutil
from pathlib import Path

import pytest

from gpusched.control.messages import Stop
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.stand_in.clock import WallClock

HOUR, YEARS = 3600, 5 * 365 * 86400


@pytest.fixture
def clock(tmp_path: Path, daemon: Daemon) -> WallClock:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the stepped clock with")
    one = WallClock(tmp_path)
    daemon.env |= one.env
    return one


@pytest.mark.parametrize("seconds", [HOUR, -HOUR, YEARS, -YEARS])
def test_a_step_of_the_wall_clock_ends_no_job_and_the_queue_goes_on(
    daemon: Daemon, clock: WallClock, seconds: int
) -> None:
    daemon.start()
    stays = daemon.submit("sleep", "600", time_limit_s=1800.0)
    daemon.wait(stays, JobState.RUNNING)
    clock.step(seconds)
    date = daemon.command.run("run", "--num-gpus", "0", "--", "date", "+%Y").stdout
    during = daemon.ended(daemon.shell("exit 0"), daemon.shell("exit 3"))
    listed = [daemon.command.run(*words).returncode for words in (("ps",), ("ps", "--why"), ("status",))]
    clock.step(0)
    after = daemon.ended(daemon.submit("true"))[0]
    assert (
        seconds in (HOUR, -HOUR) or date.strip() != daemon.command.run("run", "--num-gpus", "0", "date", "+%Y").stdout
    )
    assert [job.state for job in during] == [JobState.SUCCEEDED, JobState.FAILED]
    assert listed == [0, 0, 0]
    assert after.state is JobState.SUCCEEDED
    assert daemon.job(stays).state is JobState.RUNNING, "its time limit counts seconds that passed, not the clock's"
    daemon.ask(Stop(ids=(stays,)))
    assert daemon.ended(stays)[0].state is JobState.CANCELLED
    assert "nternal error" not in daemon.log


def test_a_time_limit_ends_its_job_although_the_clock_was_set_back(daemon: Daemon, clock: WallClock) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600", time_limit_s=2.0)
    until(lambda: daemon.job(job).started, "its time has begun")
    clock.step(-YEARS)
    assert daemon.ended(job)[0].state is JobState.FAILED
