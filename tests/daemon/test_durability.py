"""Things that are taken away beneath the daemon: no job runs twice, and no job stands in the way of the others."""

import shutil
from pathlib import Path

from gpusched.control.messages import Release, Stop
from gpusched.model.job import CommandNeed
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon, until


def test_a_running_job_whose_directory_is_removed_is_found_watched_and_stopped_and_never_run_twice(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.start()
    runs = tmp_path / "runs"
    job = daemon.shell(f"echo run >> {runs}; exec sleep 60", requeue=True)
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
    waits = daemon.submit("true", need=CommandNeed(devices=1), machine=str(machine), hold=True)
    daemon.kill()
    machine.unlink()
    daemon.start()
    daemon.ask(Release(ids=(waits,)))
    assert daemon.ended(daemon.submit("true"))[0].state is JobState.SUCCEEDED
    assert str(machine) in (daemon.job(waits).why or "")
