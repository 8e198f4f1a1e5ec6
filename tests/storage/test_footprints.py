"""Footprints and contexts of jobs that have ended: what is kept of them, for how long, and what is found again."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.execution.footprint_key import footprint_key
from gpusched.execution.submission import command_submission
from gpusched.model.footprint import LATEST_RUNS, Context, Footprint
from gpusched.model.job import CommandRequest
from gpusched.model.status import ExitReason, JobState, JobStatus, ReplicaStatus
from gpusched.model.usage import Usage
from gpusched.storage import footprint_store
from gpusched.storage.footprint_store import RoleFootprint
from gpusched.storage.job import Job
from gpusched.storage.role_footprints import footprints_of
from gpusched.storage.store import Store
from gpusched.storage.tables import VERSION
from tests.storage.records import ended, submission

V100, DRIVER = "Tesla V100-SXM2-16GB", "535.129.03"
KEY = footprint_key("snake", "actor", "{}")
JOB = Job(id="snake-1", run_dir="/j", created=1.0)


def usage(**known: object) -> Usage:
    whole = {"attempt": 0, "seconds": 60.0, "device": V100, "driver": DRIVER, "framework": "torch"}
    return Usage(**(whole | {"framework_version": "2.11", "peak_mib": 300, "pool_mib": 320, "device_mib": 532} | known))  # type: ignore[arg-type]


def over(*usages: Usage, state: JobState = JobState.SUCCEEDED, end: ExitReason | None = None) -> JobStatus:
    parts = tuple(
        ReplicaStatus(name=f"actor.{number}", role="actor", share_mib=962, limit_mib=512, usage=(one,), exit=end)
        for number, one in enumerate(usages)
    )
    return JobStatus(id="snake-1", workload="snake", state=state, counts=(), replicas=parts, run_dir="/j", ended=9.0)


def test_the_largest_peak_of_a_role_is_its_footprint_and_the_largest_context_counts() -> None:
    (row,) = footprints_of(JOB, over(usage(context_mib=212), usage(peak_mib=412, context_mib=220), usage()))
    footprint = Footprint(job="snake-1", ended=9.0, peak_mib=412, framework="torch", version="2.11")
    context = Context(driver=DRIVER, framework="torch", version="2.11", mib=220, ended=9.0)
    assert row == RoleFootprint(KEY, V100, footprint, context)


def test_a_replica_of_which_no_framework_counts_has_the_drivers_figure() -> None:
    (row,) = footprints_of(JOB, over(usage(), usage(peak_mib=None, pool_mib=None, framework=None, device_mib=900)))
    assert row.footprint is not None
    assert (row.footprint.peak_mib, row.footprint.device_mib) == (300, 900)
    assert row.footprint.needed_mib(450) == 450
    assert row.footprint.needed_mib(700) == 300


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.LOST])
def test_of_a_job_that_did_not_succeed_only_the_context_is_kept(state: JobState) -> None:
    (row,) = footprints_of(JOB, over(usage(context_mib=212), state=state))
    assert row.footprint is None
    assert row.context is not None
    assert not list(footprints_of(JOB, over(usage(), state=state)))


def test_a_lack_of_the_devices_memory_is_kept_with_its_limit_and_of_the_hosts_is_not() -> None:
    lack, other = ExitReason(kind="oom", code=1), ExitReason(kind="oom", code=1, message="the host's memory")
    (row,) = footprints_of(JOB, over(usage(), state=JobState.FAILED, end=lack))
    assert row.footprint == Footprint(job="snake-1", ended=9.0, lacked_mib=512, framework="torch", version="2.11")
    assert not list(footprints_of(JOB, over(usage(), state=JobState.FAILED, end=other)))


@pytest.mark.parametrize("mib", [-5, 0, 1 << 63, 1 << 64])
def test_a_context_that_a_job_has_invented_is_none(mib: int) -> None:
    (row,) = footprints_of(JOB, over(usage(context_mib=mib)))
    assert row.context is None


def test_what_ran_elsewhere_or_on_no_known_device_leaves_nothing() -> None:
    there = over(usage(context_mib=212))
    for other in (replace(there, simulated=True), replace(there, engine="slurm"), over(usage(device=None))):
        assert not list(footprints_of(JOB, other))


def test_of_a_job_that_runs_functions_of_a_program_only_the_context_is_kept() -> None:
    end = over(usage(context_mib=212))
    parts = tuple(replace(one, role="command", name="command.0") for one in end.replicas)
    asked = command_submission(["python", "-m", "gpusched.calls"], {"memory": "1GiB"}, {})
    (row,) = footprints_of(replace(JOB, submission=asked), replace(end, workload="run", replicas=parts))
    assert row.footprint is None
    assert row.context is not None


def put(
    store: Store, number: int, peak: int, *, ended: float | None = None, lacked: bool = False, now: float = 1e9
) -> None:
    moment = 1000.0 + number if ended is None else ended
    footprint = Footprint(job=f"run-{number}", ended=moment, peak_mib=peak, lacked_mib=peak if lacked else None)
    context = Context(driver=DRIVER, framework="torch", version="2.11", mib=peak, ended=moment)
    store.footprints.put(f"run-{number}", [RoleFootprint(KEY, V100, footprint, context)], now)


def test_the_latest_of_a_key_are_found_and_others_are_forgotten(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        for number in range(20):
            put(store, number, number)
        for number in range(20, 30):
            put(store, number, number, lacked=True)
        found = store.footprints.find([KEY, "other"], [V100, "other"], DRIVER)
        assert list(found.footprints) == [KEY]
        peaks = [row.peak_mib for row in found.footprints[KEY][V100]]
        assert peaks == [*range(29, 29 - LATEST_RUNS, -1), *range(19, 19 - LATEST_RUNS, -1)]
        assert sorted(one.mib for one in found.contexts[V100]) == list(range(25, 30))
        assert not store.footprints.find([KEY], [V100], "999.1").contexts
        assert store.footprints.find([KEY], [V100], None).contexts == found.contexts


def test_of_the_roles_of_one_job_the_largest_context_counts_once(tmp_path: Path) -> None:
    rows = [
        RoleFootprint(KEY, V100, None, Context(driver=DRIVER, framework="torch", version="", mib=mib, ended=5.0))
        for mib in (200, 230, 210)
    ]
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        store.footprints.put("snake-1", rows, 9.0)
        assert [one.mib for one in store.footprints.find([], [V100], DRIVER).contexts[V100]] == [230]


def test_a_footprint_is_saved_with_the_end_of_its_job_and_stays_when_that_is_removed(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        one = ended(1)
        assert one.last is not None
        replicas = tuple(replace(each, usage=(usage(context_mib=212),)) for each in one.last.replicas)
        store.add(replace(one, last=replace(one.last, replicas=replicas)))
        store.remove([one.id])
        assert store.footprints.find([], [V100], DRIVER).contexts
        assert not store.usage.of([one.id])


@pytest.mark.parametrize("version", [5, 6])
def test_a_store_of_a_version_before_opens_with_all_its_jobs(tmp_path: Path, version: int) -> None:
    path = tmp_path / "gpusched.db"
    with closing(Store.open(path)) as store:
        store.add(ended(1))
    with closing(sqlite3.connect(path)) as database:
        older = "DROP TABLE usage;" if version == 5 else ""
        database.executescript(f"{older} DROP TABLE footprints; DROP TABLE contexts; PRAGMA user_version={version}")
    with closing(Store.open(path)) as store:
        assert store.job(ended(1).id) is not None
        put(store, 1, 7)
        assert store.footprints.find([KEY], [V100], DRIVER).footprints
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_a_row_that_is_damaged_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    with closing(Store.open(path)) as store:
        put(store, 1, 7)
        put(store, 2, 8)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE footprints SET row = 'nonsense' WHERE job = 'run-1'")
        database.commit()
    with closing(Store.open(path)) as store:
        found = store.footprints.find([KEY], [V100], DRIVER)
        assert [row.peak_mib for row in found.footprints[KEY][V100]] == [8]


def test_a_question_for_one_key_reads_an_index_and_no_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    with closing(Store.open(path)) as store:
        with store.transaction():
            for number in range(100):
                row = Footprint(job=f"run-{number}", ended=float(number), peak_mib=number)
                store.footprints.put(f"run-{number}", [RoleFootprint(f"key {number}", V100, row, None)], 1000.0)
        assert store.footprints.find(["key 77"], [V100], DRIVER).footprints
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT row FROM footprints WHERE key=? AND device=? ORDER BY ended DESC"
        (plan, *_) = database.execute(f"EXPLAIN QUERY PLAN {query}", ("key 77", V100)).fetchall()
        assert "SEARCH footprints USING PRIMARY KEY (key=? AND device=?)" in plan[-1]


def test_a_lack_of_memory_of_a_replica_with_a_whole_device_is_not_kept() -> None:
    lack = ExitReason(kind="oom", code=1)
    end = over(usage(), state=JobState.FAILED, end=lack)
    assert list(footprints_of(JOB, end))
    assert not list(footprints_of(replace(JOB, whole_roles=("actor",)), end))
    parts = tuple(replace(one, role="command", name="command.0") for one in end.replicas)
    command = replace(end, workload="run", replicas=parts)
    for need, kept in ((CommandRequest(devices=1), False), (CommandRequest(memory_mib=512), True)):
        job = replace(JOB, submission=replace(submission(), command=need))
        assert bool(list(footprints_of(job, command))) is kept


def peaks(store: Store) -> list[int | None]:
    return [row.peak_mib for row in store.footprints.find([KEY], [V100], DRIVER).footprints[KEY][V100]]


@pytest.mark.parametrize("wrong", [1.0, 4e9, float("inf"), float("nan")], ids=["early", "late", "endless", "none"])
def test_a_clock_that_was_wrong_for_one_job_loses_nothing(tmp_path: Path, wrong: float) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        for number in range(4):
            put(store, number, number)
        put(store, 4, 4, ended=wrong, now=wrong if wrong < 5e9 else 1e9)
        assert peaks(store) == [4, 3, 2, 1, 0]
        put(store, 5, 5)
        assert peaks(store) == [5, 4, 3, 2, 1]
        found = store.footprints.find([KEY], [V100], DRIVER)
        assert sorted(one.mib for one in found.contexts[V100]) == [1, 2, 3, 4, 5]


def test_a_job_that_is_saved_again_counts_once_and_keeps_its_place(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        for number in (1, 2, 1):
            put(store, number, number)
        assert peaks(store) == [2, 1]


def test_of_all_keys_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint_store, "MOST_KEPT", 10)
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        for number in range(30):
            row = Footprint(job=f"run-{number}", ended=float(number), peak_mib=number)
            store.footprints.put(f"run-{number}", [RoleFootprint(f"key {number}", V100, row, None)], 1000.0)
        found = store.footprints.find([f"key {number}" for number in range(30)], [V100], DRIVER)
        assert list(found.footprints) == [f"key {number}" for number in range(20, 30)]
