"""What the daemon saves is there, whole, after any end; and it is small."""

import random
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from gpusched.errors import HostFault
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.job import Job
from gpusched.storage.store import Store
from tests.stand_in.library import ROOT
from tests.storage.records import SECRET, any_job, ended, queued

STORE = ROOT / "tests" / "children" / "store.py"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "state" / "gpusched.db")
    yield store
    store.close()


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(tmp_path_factory.mktemp("store") / "gpusched.db")
    yield store
    store.close()


def environ(job: Job | None) -> dict[str, str]:
    assert job is not None
    assert job.submission is not None
    return job.submission.environ


@given(job=any_job)
def test_a_job_is_read_as_it_was_saved_but_for_the_environment_of_one_that_ended(common: Store, job: Job) -> None:
    common.save(job)
    expected = job
    if job.state in JOB_TERMINAL and job.submission is not None:
        expected = replace(job, submission=replace(job.submission, environ={}))
    assert common.job(job.id) == expected
    live = [one.id for one in common.live()]
    assert (job.id in live) == (job.state not in JOB_TERMINAL)


def test_what_was_saved_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    store = Store.open(path)
    store.add(queued(1, HOME="/home/ada"))
    store.add(queued(2, HOME="/home/ada"))
    store.save(replace(queued(2, HOME="/home/ada"), state=JobState.RUNNING, supervisor_pid=77, boot_id="b"))
    store.close()
    store = Store.open(path)
    first, second = store.live()
    assert first == queued(1, HOME="/home/ada")
    assert (second.state, second.supervisor_pid, second.boot_id) == (JobState.RUNNING, 77, "b")
    store.close()


def test_jobs_are_told_in_their_order(store: Store) -> None:
    for number in (3, 1, 2):
        store.add(queued(number))
        store.add(ended(number + 10))
    store.save(replace(queued(14), state=JobState.LOST))  # nobody saw its end: it counts as of now
    assert [one.id for one in store.live()] == ["run-1", "run-2", "run-3"]
    assert [one.id for one in store.ended(2)] == ["run-14", "run-13"]
    assert [one.id for one in store.ended(5, skip=1)] == ["run-13", "run-12", "run-11"]
    assert sorted(store.known_ids()) == ["run-1", "run-11", "run-12", "run-13", "run-14", "run-2", "run-3"]
    assert store.job("no") is None


def test_numbers_are_those_of_a_workload_and_of_no_other(store: Store) -> None:
    for name in ("snake-2", "snake-10", "snake-wide-30", "snake-x", "snake-²", "snake-" + "9" * 30, "alone"):
        store.add(replace(queued(1), id=name))
    numbers = [store.last_number(name) for name in ("snake", "snake-wide", "snak", "alone")]
    assert numbers == [10, 30, 0, 0]


def test_an_environment_is_kept_once_and_forgotten_with_the_last_job_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    store = Store.open(path)
    for number in range(1, 201):
        store.add(queued(number, TOKEN=SECRET, LONG="x" * 10_000))
    one, *_, other = store.live()
    assert environ(one) is environ(other), "in memory too"
    assert store._database.number("SELECT count(*) FROM environments") == 1
    for number in range(1, 200):
        store.save(ended(number))
    assert environ(store.job("run-200"))["TOKEN"] == SECRET
    store.save(replace(queued(200, TOKEN=SECRET), state=JobState.CANCELLED))
    assert environ(store.job("run-200")) == {}
    store.close()
    assert SECRET.encode() not in path.read_bytes()
    assert zlib.compress(SECRET.encode(), 1)[2:10] not in path.read_bytes()


def test_a_job_that_is_queued_again_keeps_its_environment(store: Store) -> None:
    store.add(queued(1, HOME="/home/ada"))
    store.save(replace(queued(1, HOME="/home/ada"), state=JobState.RUNNING))
    store.save(replace(queued(1, HOME="/home/ada"), attempt=1))
    (job,) = store.live()
    assert (environ(job), job.attempt) == ({"HOME": "/home/ada"}, 1)


def test_a_transaction_is_written_whole_or_not_at_all(store: Store) -> None:
    def both(*, fail: bool) -> None:
        with store.transaction():
            store.add(queued(1))
            with store.transaction():
                store.add(queued(2))
            if fail:
                raise KeyError

    with pytest.raises(KeyError):
        both(fail=True)
    assert store.known_ids() == []
    both(fail=False)
    assert sorted(store.known_ids()) == ["run-1", "run-2"]


def test_a_job_is_added_once(store: Store) -> None:
    store.add(queued(1))
    with pytest.raises(HostFault, match="UNIQUE"):
        store.add(queued(1))
    assert store.live() == [queued(1)]


def test_only_its_owner_can_read_it(store: Store, tmp_path: Path) -> None:
    store.add(queued(1))
    state = tmp_path / "state"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [state, *state.iterdir()]}
    assert modes == {"state": 0o700, "gpusched.db": 0o600, "gpusched.db-wal": 0o600}


def test_what_was_acknowledged_is_there_after_kill_9_at_any_time(tmp_path: Path) -> None:
    path, told = tmp_path / "gpusched.db", set[str]()
    chance = random.Random(7)  # noqa: S311 (no secret)
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, str(STORE), "write", str(path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as one:
            assert one.stdout is not None
            try:
                lines = [one.stdout.readline() for _ in range(chance.randrange(10, 30))]
                time.sleep(chance.random() / 100)
            finally:
                one.kill()
            told |= set((b"".join(lines) + one.stdout.read()).decode().splitlines())
        store = Store.open(path)
        jobs = [job for one in store.known_ids() if (job := store.job(one)) is not None]
        there = {f"added {job.id}" for job in jobs} | {f"ended {job.id}" for job in store.ended(100_000)}
        assert told <= there
        assert len(there - told) <= 2 * 8, "no more than what was on its way at each kill"
        for job in jobs:
            assert (environ(job) == {}) == (job.state in JOB_TERMINAL)
        store.close()
    assert len(told) >= 80


def test_ten_thousand_ended_jobs_are_small_and_the_latest_come_first(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    store = Store.open(path)
    with store.transaction():
        for number in range(1, 10_001):
            store.add(ended(number, replicas=33 if number % 10 == 0 else 1))
    store.close()
    assert path.stat().st_size < 20 << 20
    store = Store.open(path)
    assert store.live() == []
    assert [job.id for job in store.ended(2)] == ["run-10000", "run-9999"]
    assert len(store.known_ids()) == store.last_number("run") == 10_000
    store.close()
