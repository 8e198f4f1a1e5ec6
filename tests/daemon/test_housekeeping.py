"""Old jobs and logs are removed by the daemon itself, where the configuration wants it, and no others."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusched.linux.file_locks import lock
from gpusched.linux.regular_files import open_regular
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.storage.history import fill

MakeDaemon = Callable[[str], Daemon]


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[MakeDaemon]:
    """A daemon of that configuration, which is not started yet."""
    made: list[Daemon] = []

    def make(text: str) -> Daemon:
        (tmp_path / "config.toml").write_text(text)
        made.append(Daemon(tmp_path, {"GPUSCHED_CONFIG": str(tmp_path / "config.toml")}))
        return made[-1]

    yield make
    for one in made:
        one.end()


def directories(daemon: Daemon) -> list[str]:
    return sorted(path.name for path in (daemon.state / "jobs").iterdir())


def is_deleted(daemon: Daemon) -> bool:
    return not list((daemon.state / "removed").iterdir())


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Hold the lock of a job's guard."""
    with os.fdopen(open_regular(path / "guard.lock", os.O_RDWR | os.O_CREAT), "w") as file:
        assert lock(file.fileno(), 0)
        yield


def test_nothing_is_removed_unless_the_configuration_wants_it(configured: MakeDaemon) -> None:
    daemon = configured("")
    fill(daemon.state, 4000, 1)
    daemon.start()
    daemon.wait(daemon.shell("true"))
    assert directories(daemon) == ["run-1", "run-2", "run-3"]
    assert not (daemon.state / "removed").exists()


def test_jobs_that_ended_too_long_ago_are_removed_with_their_directories_and_their_results_are_kept(
    configured: MakeDaemon,
) -> None:
    daemon = configured('keep_jobs = "90d"')
    fill(daemon.state, *[100 + number for number in range(20)], 80, 1)
    daemon.start()
    until(lambda: directories(daemon) == ["run-21", "run-22"], "the old ones are removed")
    until(lambda: is_deleted(daemon), "what was moved away is deleted")
    assert len(list((daemon.state / "results").iterdir())) == 20
    assert (daemon.state / "results" / "run-7" / "weights").read_text() == "weights of run-7"
    assert "removed 8 jobs, as keep_jobs wants it" in daemon.log
    assert [job.id for job in daemon.jobs()] == ["run-22", "run-21"]
    assert daemon.shell("true") == "run-23"


def test_the_latest_jobs_are_kept_where_a_number_is_given(configured: MakeDaemon) -> None:
    daemon = configured("keep_jobs = 2")
    fill(daemon.state, 5, 3, 3, 3, 9)
    daemon.start()
    until(lambda: len(directories(daemon)) == 2, "all but two are removed")
    assert directories(daemon) == ["run-3", "run-4"]


def test_one_that_has_to_stay_keeps_no_other_from_being_removed(configured: MakeDaemon, tmp_path: Path) -> None:
    daemon = configured('keep_jobs = "1d"')
    fill(daemon.state, *range(50, 20, -1))
    first, treasure = daemon.state / "jobs" / "run-1", tmp_path / "treasure"
    first.rename(treasure)
    first.symlink_to(treasure)
    with guarded(daemon.state / "jobs" / "run-2"):
        daemon.start()
        until(lambda: len(directories(daemon)) <= 2, "the others are removed")
        assert directories(daemon) == ["run-1", "run-2"]
    assert (treasure / "weights").read_text() == "weights of run-1"


def test_the_logs_of_jobs_that_ended_long_ago_are_removed_and_the_jobs_stay(configured: MakeDaemon) -> None:
    daemon = configured('keep_logs = "30d"')
    fill(daemon.state, *[40] * 70, 20)
    daemon.start()
    logs = [daemon.state / "jobs" / f"run-{number}" / "logs" for number in range(1, 72)]
    until(lambda: sum(path.exists() for path in logs) == 1, "the old ones are removed")
    until(lambda: is_deleted(daemon), "what was moved away is deleted")
    assert (logs[70] / "actor.0.log").read_text() == "it went well\n"
    assert (logs[0].parent / "weights").read_text() == "weights of run-1"
    assert len(directories(daemon)) == 71
    told = daemon.command.run("logs", "run-1")
    assert (told.returncode, told.stdout) == (4, "")
    assert f"run-1 has no log any more: the daemon removed it on {time.strftime('%Y-')}" in told.stderr
    assert "keep_logs in the configuration" in told.stderr
    assert daemon.command.run("logs", "run-71").stdout == "it went well\n"


def test_logs_stay_of_what_a_process_lives_and_behind_a_link(configured: MakeDaemon, tmp_path: Path) -> None:
    daemon = configured('keep_logs = "30d"')
    fill(daemon.state, 60, 50, 40)
    first, treasure = daemon.state / "jobs" / "run-1" / "logs", tmp_path / "treasure"
    first.rename(treasure)
    first.symlink_to(treasure)
    with guarded(daemon.state / "jobs" / "run-2"):
        daemon.start()
        until(lambda: not (daemon.state / "jobs" / "run-3" / "logs").exists(), "the last one's logs are removed")
        assert (daemon.state / "jobs" / "run-2" / "logs").is_dir()
    assert (treasure / "actor.0.log").read_text() == "it went well\n"


def test_a_job_that_lives_stays_where_no_other_is_to_be_kept(configured: MakeDaemon) -> None:
    daemon = configured("keep_jobs = 0")
    fill(daemon.state, *[1] * 30)
    daemon.start()
    job = daemon.submit("sleep", "1000")
    until(lambda: directories(daemon) == [job], "all that ended are removed")
    assert daemon.job(job).id == job
