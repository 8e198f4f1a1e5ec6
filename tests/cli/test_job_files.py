"""Jobs as their directories show them, of which a host may have thousands."""

import os
from pathlib import Path

import msgspec
import pytest

from gpusched.execution import read_jobs as module
from gpusched.execution.directory import JobDirectory, create, initial_status
from gpusched.execution.listing import jobs_on_disk
from gpusched.linux.processes import boot_id, start_time
from gpusched.model.status import JobState, JobStatus
from gpusched.settings import Settings, load_settings
from tests.supervisor.specs import job, replica

ENDED = 30


def settings(home: Path) -> Settings:
    return load_settings(
        {"HOME": str(home), "GPUSCHED_STATE_DIR": str(home), "GPUSCHED_RUNTIME_DIR": str(home / "run")}
    )


def left(home: Path, **changes: object) -> JobDirectory:
    """A job with a status of a supervisor, which is this process where `changes` name no other."""
    directory = create(home, "run")
    spec = msgspec.structs.replace(job(replica("command.0")), id=directory.path.name)
    directory.write_spec(spec)
    me = {"supervisor_pid": os.getpid(), "supervisor_start": start_time(os.getpid()), "boot_id": boot_id()}
    directory.leave_status(msgspec.structs.replace(initial_status(directory, spec), **me | changes))
    return directory


def test_those_that_live_come_first_and_of_the_others_the_latest(tmp_path: Path) -> None:
    left(tmp_path, state=JobState.RUNNING, created=2.0)
    left(tmp_path, state=JobState.SUCCEEDED, created=1.0, ended=30.0)
    left(tmp_path, state=JobState.RUNNING, created=3.0, supervisor_start=1)  # lost, though nothing says so
    left(tmp_path, state=JobState.FAILED, created=1.0, ended=20.0)
    left(tmp_path, state=JobState.STARTING, created=1.0)
    left(tmp_path).status.write_text("{")
    found = [(one.id, str(one.state)) for one in jobs_on_disk(settings(tmp_path), (), 3)]
    assert found == [
        ("run-5", "starting"), ("run-1", "running"), ("run-6", "lost"), ("run-2", "succeeded"), ("run-4", "failed"),
    ]  # fmt: skip


def test_of_thousands_that_ended_only_those_that_are_shown_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(ENDED):
        left(tmp_path, state=JobState.SUCCEEDED, ended=float(1000 - number))
    read: list[str] = []
    read_job = module.read_job

    def counted(path: Path) -> JobStatus:
        read.append(path.name)
        return read_job(path)

    monkeypatch.setattr(module, "read_job", counted)
    assert [one.id for one in jobs_on_disk(settings(tmp_path), (), 3)] == ["run-1", "run-2", "run-3"]
    assert read == ["run-1", "run-2", "run-3"]
