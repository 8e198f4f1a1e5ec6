"""What lies in a directory that a job can write is read and written without a wait, and within bounds."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from gpusched.errors import GpuschedError, HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import has_begun, read_nonce
from gpusched.execution.hosts import with_joined
from gpusched.execution.job_logs import LogTail
from gpusched.execution.nodes import merge_node_status
from gpusched.execution.orders import StopOrder, give, read_new
from gpusched.execution.read_jobs import read_job
from gpusched.execution.reports import NewReports, last_progress, read_frame
from gpusched.execution.start import cancel_start, prepare, spawn
from gpusched.joining.invitation import INVITATION, read_invitation
from gpusched.joining.keys import ALLOWED, SERVER, listed, new_key, read_join_key, read_server_key
from gpusched.leases.directory import give_back
from gpusched.linux.files import overwrite_file, remove_tree, replace_file
from gpusched.linux.processes import boot_id, start_time
from gpusched.linux.regular_files import (
    NotRegularError,
    append_regular,
    last_lines,
    next_data,
    open_regular,
    read_regular,
    read_tail,
)
from gpusched.model.status import JobState, JobStatus
from tests.odd_files import KINDS, put, within
from tests.supervisor.specs import job as job_spec
from tests.supervisor.specs import replica

ODD: Final = tuple(kind for kind in KINDS if kind not in ("sparse", "unreadable"))
MOST: Final = 1 << 20


def status_of(job: Path, **changes: Any) -> JobStatus:
    return JobStatus(
        id=job.name, workload="snake", state=JobState.RUNNING, counts=(), replicas=(), run_dir=str(job), **changes
    )


def ordered(job: Path) -> None:
    """Give an order to a job whose supervisor is some process."""
    with subprocess.Popen(["sleep", "100"]) as supervisor:
        pid, start = supervisor.pid, start_time(supervisor.pid)
        try:
            give(status_of(job, supervisor_pid=pid, supervisor_start=start, boot_id=boot_id()), StopOrder())
        finally:
            supervisor.kill()


def error_of(action: Callable[[], object]) -> Exception | None:
    try:
        within(action)
    except (OSError, GpuschedError) as error:
        return error
    return None


def names(error: Exception, job: Path) -> bool:
    """Whether an error names the file in the job's directory, or what a link there leads to."""
    return str(job) in str(error) or "/dev/zero" in str(error)


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "status.json": lambda job: JobDirectory(job).read_status(),
    "spec.json": read_job,
    "progress.jsonl": lambda job: last_progress(job / "progress.jsonl"),
    "reports": lambda job: NewReports(job / "reports").read(),
    "frame.txt": read_frame,
    "logs/part.0.log": lambda job: last_lines(job / "logs" / "part.0.log", 3),
    "logs/part.1.log": lambda job: LogTail(job / "logs" / "part.1.log", 3),
    "logs/part.2.log": lambda job: list(LogTail(job / "logs" / "part.2.log", None).pieces()),
    "orders.jsonl": lambda job: read_new(job / "orders.jsonl", 0),
    "joined.json": lambda job: with_joined(status_of(job, listen="tcp://h:1")),
    "nodes/0.json": lambda job: merge_node_status(status_of(job, engine="slurm")),
    "nodes": lambda job: merge_node_status(status_of(job, engine="slurm")),
    "engine.txt": lambda job: merge_node_status(status_of(job, engine="slurm")),
    INVITATION: read_invitation,
    ALLOWED: listed,
    f"{ALLOWED}.lock": lambda job: new_key(job, "one"),
    SERVER: lambda job: read_server_key(job / SERVER),
    "join.key": lambda job: read_join_key(job / "join.key"),
    "lease": lambda job: give_back(job / "lease", "part.0"),
    "guard.lock": lambda job: (JobDirectory(job).is_guarded(), has_begun(JobDirectory(job))),
    "guard.lock ": lambda job: read_nonce(JobDirectory(job)),
}

WRITERS: Final[dict[str, Callable[[Path], object]]] = {
    "events.jsonl": lambda job: JobDirectory(job).append_events([{"a": 1}]),
    "orders.jsonl": ordered,
    "guard.lock": lambda job: cancel_start(JobDirectory(job)),
    "guard.lock ": lambda job: prepare(JobDirectory(job), job_spec(replica("part.0"))),
    "status.json": lambda job: overwrite_file(job / "status.json", b"{}"),
    "logs/supervisor.log": lambda job: spawn(JobDirectory(job), "nonce", {}),
    "tmp": lambda job: JobDirectory(job).clear_tmp(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", READERS)
def test_every_reader_has_an_answer_whatever_is_in_the_place_of_a_file(tmp_path: Path, file: str, kind: str) -> None:
    job = tmp_path / "snake-1"
    (job / "logs").mkdir(parents=True)
    put(kind, job / file.strip())
    error = error_of(lambda: READERS[file](job))
    assert error is None or names(error, job)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("file", WRITERS)
def test_no_writer_waits_for_what_is_in_the_place_of_its_file_or_follows_it(
    tmp_path: Path, file: str, kind: str
) -> None:
    job = tmp_path / "snake-1"
    (job / "logs").mkdir(parents=True)
    put(kind, job / file.strip())
    error = error_of(lambda: WRITERS[file](job))
    assert error is None or names(error, job)


def test_a_link_out_of_the_directory_is_not_written_through(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"dear")
    job = JobDirectory(tmp_path / "snake-1")
    job.path.mkdir()
    for path in (job.events, job.guard_lock, job.status, job.status.with_name("status.json.tmp")):
        path.symlink_to(mine)
    with pytest.raises(NotRegularError, match=r"events\.jsonl"):
        job.append_events([{"a": 1}])
    with pytest.raises(HostFault, match="a symbolic link"):
        cancel_start(job)
    job.write_status(status_of(job.path))
    assert mine.read_bytes() == b"dear"
    assert job.status.is_file()
    assert not job.status.is_symlink()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_replaced_whatever_is_in_its_place_or_beside_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "status.json"
    put(kind, path)
    put(kind, tmp_path / "status.json.tmp")
    within(lambda: replace_file(path, b"mine"))
    assert path.read_bytes() == b"mine"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_is_removed_whatever_is_in_its_place(tmp_path: Path, kind: str) -> None:
    put(kind, tmp_path / "tmp")
    within(lambda: remove_tree(tmp_path / "tmp"))
    assert not os.path.lexists(tmp_path / "tmp")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append_regular(path, b"x" * MOST)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_regular(path, MOST) == b"x" * MOST
    append_regular(path, b"yz")
    with pytest.raises(NotRegularError, match="more than"):
        read_regular(path, MOST)
    assert read_tail(path, 3) == b"xyz"
    assert read_tail(path, MOST, after=MOST + 1) == b"z"
    assert read_tail(path, MOST, after=2 * MOST) == b""


def test_what_was_never_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 30)
        file.write(b"end")
    descriptor = open_regular(path, os.O_RDONLY)
    assert next_data(descriptor, 0) == 1 << 30
    assert next_data(descriptor, (1 << 30) + 1) == (1 << 30) + 1
    assert next_data(descriptor, 1 << 31) == (1 << 30) + 3
    os.close(descriptor)
