"""1,000 jobs are pruned in the midst of 50 that run: none of theirs is touched, and nothing behind a link."""

from pathlib import Path

import pytest

from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.storage.history import fill

OLD, LIVE = 1000, 50


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def contents(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a directory: its inode, when it was written, and what is in it.

    Of status.json only that it is there: a supervisor writes it again, with a temporary file, when it has sampled what
    its replicas use.
    """
    return {
        str(one.relative_to(path)): (0, 0, b"")
        if one.name == "status.json"
        else (one.lstat().st_ino, one.lstat().st_mtime_ns, one.read_bytes())
        for one in path.rglob("*")
        if one.name != "status.json.tmp" and one.is_file() and not one.is_symlink()
    }


@pytest.mark.slow
def test_a_thousand_jobs_are_pruned_in_the_midst_of_fifty_that_run(daemon: Daemon, tmp_path: Path) -> None:
    fill(daemon.state, *[40] * OLD)
    jobs, treasure = daemon.state / "jobs", tmp_path / "treasure"
    (jobs / "run-500").rename(treasure)
    (jobs / "run-500").symlink_to(treasure)
    daemon.start()
    live = [daemon.submit("sleep", "1000") for _ in range(LIVE)]
    until(lambda: {job.state for job in daemon.jobs(*live)} == {JobState.RUNNING}, "all run")
    processes = {job.id: (job.supervisor_pid, job.replicas[0].pid) for job in daemon.jobs(*live)}
    before = {name: contents(jobs / name) for name in live}
    hidden = contents(treasure)

    told = daemon.command.run("prune", "--older", "30d")

    assert told.returncode == 1
    assert told.stderr == f"gpusched: run-500 stays: {jobs / 'run-500'} is a link to another place, or no directory\n"
    assert sorted(told.stdout.split()[::3]) == sorted(f"run-{number}" for number in range(1, OLD + 1) if number != 500)
    assert names(jobs) == sorted([*live, "run-500"])
    assert names(daemon.state / "removed") == []
    assert contents(treasure) == hidden
    assert {name: contents(jobs / name) for name in live} == before
    assert {job.id: (job.supervisor_pid, job.replicas[0].pid) for job in daemon.jobs(*live)} == processes
    assert {job.state for job in daemon.jobs(*live)} == {JobState.RUNNING}
