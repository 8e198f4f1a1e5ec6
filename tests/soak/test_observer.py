"""The observer of the soak sees each fault that it is there for: faults are made here, and each is a violation."""

import fcntl
import json
import os
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.soak import observer as module
from tests.soak.gpus import PLANNABLE_MIB, Gpus
from tests.soak.host import Host
from tests.soak.jobs import Job, Jobs, Ledger
from tests.soak.journal import Journal
from tests.soak.observer import Observer


class Scene:
    """A host without a daemon, and an observer of it."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(folder, can_mount=False)
        self.journal = Journal(folder / "log")
        self.jobs = Jobs(Ledger(self.host.ledger))
        self.observer = Observer(self.host, self.jobs, self.journal)

    def job(self, job_id: str = "run-1", **fields: Any) -> Job:
        job = self.jobs.new("quick", ends=("completed", 0), detached=True, **fields)
        job.acknowledged = True
        self.jobs.name_id(job, job_id)
        return job

    def started(self, job: Job, times: int = 1) -> None:
        with self.host.ledger.open("a") as file:
            file.write(f"s {job.token} {job.id} command.0 0\n" * times)

    def listed(self, job: Job, state: str, code: int = 0) -> None:
        end = {"kind": "crashed" if code else "completed", "code": code, "signal": None}
        replica = {"name": "command.0", "state": "exited", "exit": end, "restarts": 0}
        one = {"id": job.id, "name": job.token, "state": state, "attempt": 0, "message": None, "replicas": [replica]}
        self.observer.heed([one])

    def seen(self) -> list[str]:
        return [violation.split(": ")[1] for violation in self.journal.violations]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the stand-ins with")
    return Scene(tmp_path)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOUND_S", 0.0)


class Lease:
    """A lease file as docs/reference.md describes it, locked like a guard does."""

    def __init__(self, folder: Path, job: str, *shares: tuple[int, bool]) -> None:
        lines = [json.dumps({"guard": os.getpid(), "version": 1, "job": job})]
        lines += [
            "+ " + json.dumps({"device_uuid": Gpus.uuid(0), "share_mib": mib, "replica": "command.0", "whole": whole})
            for mib, whole in shares
        ]
        self.path = folder / f"0-{job}.lease"
        self.path.write_text("\n".join([*lines, ""]))
        self._descriptor = os.open(self.path, os.O_RDWR)
        fcntl.fcntl(self._descriptor, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0))  # F_OFD_SETLK

    def free(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def two_leases(scene: Scene) -> Iterator[tuple[Lease, Lease]]:
    both = (
        Lease(scene.host.leases, "run-1", (PLANNABLE_MIB - 999, False)),
        Lease(scene.host.leases, "run-2", (1000, False)),
    )
    yield both
    for one in both:
        one.free()


def test_a_sound_life_is_no_violation(scene: Scene) -> None:
    job = scene.job()
    scene.started(job)
    scene.listed(job, "running")
    scene.listed(job, "succeeded")
    for check in (scene.observer.check_leases, scene.observer.check_processes, scene.observer.finish):
        check()
    assert scene.seen() == []


@pytest.mark.usefixtures("two_leases")
def test_a_share_that_is_held_twice_is_seen(scene: Scene) -> None:
    scene.observer.check_leases()
    assert scene.seen() == ["no share is held twice"]


def test_what_nobody_locks_is_not_held(scene: Scene, two_leases: tuple[Lease, Lease]) -> None:
    two_leases[0].path.rename(two_leases[0].path.with_suffix(".other"))
    scene.observer.check_leases()
    assert scene.seen() == []


def test_a_whole_device_that_is_shared_is_seen(scene: Scene) -> None:
    one, other = Lease(scene.host.leases, "run-1", (500, True)), Lease(scene.host.leases, "run-2", (500, False))
    scene.observer.check_leases()
    assert scene.seen() == ["no share is held twice"]
    one.free()
    other.free()


@pytest.mark.usefixtures("at_once", "two_leases")
def test_a_lease_after_the_end_is_seen(scene: Scene) -> None:
    job = scene.job()
    scene.started(job)
    scene.listed(job, "succeeded")
    scene.observer.check_leases_are_free()
    assert scene.seen() == ["leases are free after the end"]


@pytest.mark.usefixtures("at_once")
def test_a_process_that_outlives_its_job_is_seen(scene: Scene) -> None:
    job = scene.job()
    scene.started(job)
    scene.listed(job, "succeeded")
    with subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "SOAK_TOKEN": job.token, "SOAK_ROOT": str(scene.host.root)}
    ) as process:
        scene.observer.check_processes()
        process.kill()
    assert scene.seen() == ["no process outlives its job"]


def test_a_job_that_runs_twice_is_seen(scene: Scene) -> None:
    job = scene.job()
    scene.started(job, times=2)
    scene.listed(job, "running")
    assert scene.seen() == ["every job runs once"]


def test_a_submission_that_became_two_jobs_is_seen(scene: Scene) -> None:
    job = scene.job()
    scene.listed(job, "running")
    job.id, before = "run-2", job.id
    scene.listed(job, "running")
    job.id = before
    scene.listed(Job(job.token, "quick", None, detached=True, id="run-2"), "running")
    assert "a submission is one job" in scene.seen()


def test_a_job_that_was_lost_is_seen(scene: Scene) -> None:
    scene.job()
    scene.observer.finish()
    assert "no acknowledged job is lost" in scene.seen()


def test_a_terminal_state_that_is_left_is_seen(scene: Scene) -> None:
    job = scene.job()
    scene.started(job)
    scene.listed(job, "succeeded")
    scene.listed(job, "running")
    assert scene.seen() == ["terminal states are never left"]


def test_a_wrong_exit_code_and_a_wrong_end_are_seen(scene: Scene) -> None:
    job = scene.job()
    scene.started(job)
    scene.listed(job, "failed", code=3)
    assert scene.seen() == ["jobs end as their commands do", "exit codes match"]


def test_a_job_that_succeeded_and_never_ran_is_seen(scene: Scene) -> None:
    scene.listed(scene.job(), "succeeded")
    assert scene.seen() == ["every job that succeeded has run"]


def test_a_job_that_was_disturbed_on_purpose_may_end_otherwise(scene: Scene) -> None:
    job = scene.job()
    job.excused.add("stopped")
    scene.listed(job, "cancelled")
    assert scene.seen() == []


def test_a_traceback_in_a_log_is_seen_once(scene: Scene) -> None:
    log = scene.host.state / "daemon.log"
    log.write_text("fine\nTraceback (most recent call last):\n")
    scene.observer.check_logs()
    scene.observer.check_logs()
    assert scene.seen() == ["no traceback in a log"]


def test_a_database_without_an_acknowledged_job_or_that_is_damaged_is_seen(scene: Scene) -> None:
    path = scene.host.state / "gpusched.db"
    scene.job()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT, state TEXT)")
    connection.close()
    scene.observer.check_database()
    path.write_bytes(b"no database" * 1000)
    scene.observer.check_database()
    assert scene.seen() == ["no acknowledged job is lost", "the database is sound"]


def test_a_stray_file_of_an_ended_job_is_seen(scene: Scene, at_once: None) -> None:  # noqa: ARG001
    job = scene.job()
    scene.started(job)
    scene.listed(job, "succeeded")
    folder = scene.host.state / "jobs" / "run-1"
    folder.mkdir(parents=True)
    (folder / "status.json.tmp").touch()
    scene.observer.check_left_files()
    assert scene.seen() == ["no stray files"]
