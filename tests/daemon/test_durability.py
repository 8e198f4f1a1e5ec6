"""Things that are taken away beneath the daemon: no job runs twice, and no job stands in the way of the others."""

import resource
import shutil
import time
from pathlib import Path

import pytest

from bench.host import cpu_s
from gpusched.control.messages import Hold, Stop
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.read_jobs import read_job
from gpusched.model.job import CommandRequest
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import until

AT_REST = 0.1  # of a core; a loop that never rests takes all that it can get


def test_a_running_job_whose_directory_is_removed_is_found_watched_and_stopped_and_never_run_twice(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.start()
    runs = tmp_path / "runs"
    job = daemon.shell(f"echo run >> {runs}; exec sleep 600", requeue=True)
    daemon.wait(job, JobState.RUNNING)
    until(runs.exists, "the command runs")
    shutil.rmtree(daemon.job(job).run_dir)
    daemon.kill()
    daemon.start()
    assert daemon.job(job).state is JobState.RUNNING
    daemon.ask(Stop(ids=(job,)))
    over = daemon.ended(job)[0]
    assert (over.state, "cannot be read" in (over.message or "")) == (JobState.LOST, True)
    assert runs.read_text() == "run\n"


def test_a_job_whose_machines_file_is_gone_says_so_and_holds_up_nobody(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    machine = tmp_path / "machine.json"
    machine.write_text(daemon.command.run("status", "--machine", "2x16GiB", "--json").stdout)
    waits = daemon.submit("true", need=CommandRequest(devices=1), machine=str(machine), hold=True)
    daemon.kill()
    machine.unlink()
    daemon.start()
    daemon.ask(Hold(ids=(waits,), held=False))
    assert daemon.ended(daemon.submit("true"))[0].state is JobState.SUCCEEDED
    assert str(machine) in (daemon.job(waits).why or "")


def test_directories_of_which_no_job_comes_are_looked_at_now_and_then(daemon: Daemon) -> None:
    for number in range(500):
        (daemon.state / "jobs" / f"old-{number}").mkdir(parents=True)
    (daemon.state / "jobs" / "odd-\udcff").mkdir()
    daemon.start()
    assert daemon.ended(daemon.submit("true"))[0].state is JobState.SUCCEEDED
    assert share_of_a_core(daemon) < AT_REST


def test_a_disk_that_is_full_for_long_costs_nothing_while_jobs_wait(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600")
    daemon.submit("true", after=(job,))
    daemon.wait(job, JobState.RUNNING)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, -1))
    with pytest.raises(HostFault, match=r"gpusched\.db"):
        daemon.submit("true")
    assert share_of_a_core(daemon) < AT_REST


def test_a_job_that_was_taken_is_known_by_its_token_on_a_full_disk(daemon: Daemon) -> None:
    daemon.start()
    taken = daemon.submit("true", hold=True, token="one")
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, -1))
    with pytest.raises(HostFault, match=r"gpusched\.db"):
        daemon.submit("true", hold=True, token="another")
    assert daemon.submit("true", hold=True, token="one") == taken


def test_a_daemon_starts_on_a_full_disk_so_that_who_fills_it_can_be_stopped(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600")
    short = daemon.shell(f"while ! test -e {daemon.state}/gate; do sleep 0.05; done")
    for each in (job, short):
        daemon.wait(each, JobState.RUNNING)
    daemon.kill()
    (daemon.state / "gate").touch()
    directory = JobDirectory(daemon.state / "jobs" / short)
    until(lambda: read_job(directory.path).state is JobState.SUCCEEDED, "the short one is over")
    until(lambda: not directory.is_guarded(), "its guard is gone")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert daemon.pong().problems
    assert daemon.job(short).state is JobState.SUCCEEDED
    daemon.ask(Stop(ids=(job,)))
    assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_a_log_that_has_grown_long_is_begun_anew_where_a_daemon_begins(daemon: Daemon) -> None:
    daemon.state.mkdir(mode=0o700)
    (daemon.state / "daemon.log").write_text("old\n" * 300_000)
    daemon.command.daemon()
    until(lambda: "the daemon serves" in daemon.log, "the log is written")
    assert "old" not in daemon.log
    assert (daemon.state / "daemon.log.1").read_text().startswith("old")


def share_of_a_core(daemon: Daemon) -> float:
    """Measure for a second how busy the daemon is; a busy host makes it less, never more."""
    used, began = cpu_s(daemon.pid), time.monotonic()
    time.sleep(1)
    return (cpu_s(daemon.pid) - used) / (time.monotonic() - began)


def test_a_status_that_is_no_text_stops_no_daemon_and_its_job_is_still_watched_and_stopped(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("sleep", "600")
    daemon.wait(job, JobState.RUNNING)
    status = Path(daemon.job(job).run_dir) / "status.json"
    until(lambda: b'"pid":' in status.read_bytes(), "the command runs, so that nothing more is saved")
    daemon.kill()
    status.write_bytes(b'{"id": "\xff"}')
    daemon.start()
    assert daemon.job(job).state is JobState.RUNNING
    daemon.ask(Stop(ids=(job,)))
    assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_what_keeps_a_job_from_starting_is_told_and_it_starts_when_that_is_gone(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("true", hold=True)
    in_the_way = Path(daemon.job(job).run_dir) / "logs"
    in_the_way.touch()
    daemon.ask(Hold(ids=(job,), held=False))
    until(lambda: "tried again in" in (daemon.job(job).why or ""), "it is told that it could not be started")
    assert daemon.job(job).run_dir in (daemon.job(job).why or "")
    assert not list(daemon.settings.lease_dir.glob("*.lease"))
    in_the_way.unlink()
    assert daemon.ended(job)[0].state is JobState.SUCCEEDED
