"""How long a job runs on, by the part of its work that its leader reports."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.status import JobState
from gpusched.scheduling.expectations import Expectations
from gpusched.scheduling.work_done import WorkDone
from gpusched.storage.job import Job
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.scheduling.queueing import job, part, whole

BEGAN = 1000.0


def running(run_dir: Path, name: str = "run-1", **fields: Any) -> Job:
    found = replace(job(name, part(0.3), **fields), run_dir=str(run_dir), state=JobState.RUNNING, started=BEGAN)
    return replace(found, attempt=1)


def report(run_dir: Path, **line: object) -> None:
    with (run_dir / "progress.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def middle(work: WorkDone, mine: Job, now: float) -> float | None:
    left = work.left(mine, now)
    return None if left is None else left[len(left) // 2]


def reported(run_dir: Path, *moments: tuple[float, float], mine: Job | None = None) -> WorkDone:
    """Report each part of the work at its time, and have it read then."""
    work = WorkDone()
    for time, done in moments:
        report(run_dir, time=time, done=done)
        work.read([mine or running(run_dir)], time)
    return work


def test_a_job_runs_on_at_the_speed_that_its_reports_show(tmp_path: Path) -> None:
    mine = running(tmp_path)
    work = reported(tmp_path, (1100.0, 0.25))  # after a slow start, or with the weights of an earlier run
    assert work.left(mine, 1100.0) is None
    report(tmp_path, time=1200.0, done=0.5)
    work.read([mine], 1200.0)
    assert middle(work, mine, 1200.0) == 200
    assert middle(work, mine, 1300.0) == 100


def test_what_is_in_the_file_already_is_used_and_so_are_steps(tmp_path: Path) -> None:
    for time in range(1100, 2000):
        report(tmp_path, time=float(time), step=time - 1100, steps=1000, text="x" * 200)
        report(tmp_path, time=float(time), note="between two of them")
    work = WorkDone()
    work.read([running(tmp_path)], 2000.0)
    assert middle(work, running(tmp_path), 2000.0) == pytest.approx(100)


def test_the_speed_is_that_of_the_later_half(tmp_path: Path) -> None:
    work = reported(tmp_path, (1100.0, 0.0), (5000.0, 0.02), (8000.0, 0.05), (9000.0, 0.55))
    assert middle(work, running(tmp_path), 9000.0) == pytest.approx(0.45 * 4000 / 0.53)


def test_before_a_tenth_of_the_work_was_seen_earlier_runs_are_the_better_guess(tmp_path: Path) -> None:
    assert reported(tmp_path, (1100.0, 0.1), (8000.0, 0.19)).left(running(tmp_path), 8000.0) is None


def test_one_that_outlives_its_prediction_is_expected_to_run_on_by_how_long_it_has(tmp_path: Path) -> None:
    work, mine = reported(tmp_path, (1000.0, 0.0), (1900.0, 0.9)), running(tmp_path)  # it ends at 2000, and goes silent
    assert work.left(mine, 2000.0) == (48.0, 54.0, 60.0, 69.0, 84.0)
    assert work.left(mine, 12_000.0) == pytest.approx((1000, 5000, 10_000, 20_000))


def test_reports_are_read_every_ten_seconds_and_also_after_a_clock_was_set_back(tmp_path: Path) -> None:
    work, mine = WorkDone(), running(tmp_path)
    for now, done, left in ((1100.0, 0.1, None), (1105.0, 0.9, None), (1110.0, 0.3, 70.0), (1050.0, 0.9, 70.0)):
        (tmp_path / "progress.jsonl").unlink(missing_ok=True)
        report(tmp_path, time=now, done=done)
        work.read([mine], now)
        found = middle(work, mine, 1110.0)
        assert found is None if left is None else found is not None, now


def test_work_that_begins_anew_counts_from_there(tmp_path: Path) -> None:
    mine = running(tmp_path)
    work = reported(tmp_path, (1100.0, 0.1), (1200.0, 0.8), (1300.0, 0.2))
    assert work.left(mine, 1300.0) is None
    report(tmp_path, time=1400.0, done=0.4)
    work.read([mine], 1400.0)
    assert middle(work, mine, 1400.0) == pytest.approx(300)


def test_what_an_earlier_attempt_reported_is_nothing_to_the_next(tmp_path: Path) -> None:
    mine = running(tmp_path)
    work = reported(tmp_path, (1100.0, 0.1), (1200.0, 0.8))
    again = replace(mine, attempt=2, started=1300.0)
    assert work.left(again, 1310.0) is None
    work.read([again], 1310.0)
    assert work.left(again, 1310.0) is None
    report(tmp_path, time=1320.0, done=0.9)
    work.read([again], 1320.0)
    assert work.left(again, 1320.0) is None
    assert work.left(replace(mine, state=JobState.QUEUED), 1310.0) is None


def test_of_many_jobs_some_are_read_at_a_time_and_all_in_the_end(tmp_path: Path) -> None:
    jobs = []
    for number in range(30):
        run_dir = tmp_path / str(number)
        run_dir.mkdir()
        report(run_dir, time=1100.0, done=0.1)
        report(run_dir, time=1200.0, done=0.5)
        jobs.append(running(run_dir, f"run-{number}"))
    work = WorkDone()
    for expected in (20, 30):
        work.read(jobs, 1200.0)
        assert sum(work.left(one, 1200.0) is not None for one in jobs) == expected


USELESS: list[dict[str, object]] = [
    {"step": 7},
    {"step": 7, "steps": 0},
    {"done": "0.5"},
    {"done": None},
    {"done": [1]},
    {"done": 1.5},
    {"done": True},
    {"done": -1},
]


@pytest.mark.parametrize("line", USELESS, ids=str)
def test_a_report_of_something_else_is_of_no_use(tmp_path: Path, line: dict[str, object]) -> None:
    work = reported(tmp_path, (1100.0, 0.0))
    report(tmp_path, time=1200.0, **line)
    work.read([running(tmp_path)], 1200.0)
    assert work.left(running(tmp_path), 1200.0) is None


def test_a_file_that_is_none_of_ours_costs_nothing_and_is_of_no_use(tmp_path: Path) -> None:
    hostile = tmp_path / "progress.jsonl"
    work, mine = WorkDone(), running(tmp_path)
    ways: tuple[Callable[[], object], ...] = (
        lambda: os.mkfifo(hostile),
        lambda: hostile.write_bytes(b"\n" * 70_000),
        hostile.mkdir,
    )
    for now, make in enumerate(ways):
        make()
        work.read([mine], 1100.0 + 10 * now)
        assert work.left(mine, 1200.0) is None
        hostile.rmdir() if hostile.is_dir() else hostile.unlink()


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(BEGAN, 1e6)), max_size=6), st.floats(0, 1e6))
def test_whatever_is_reported_something_is_left_and_it_rises(
    tmp_path_factory: pytest.TempPathFactory, reports: list[tuple[float, float]], now: float
) -> None:
    run_dir = tmp_path_factory.mktemp("job")
    left = reported(run_dir, *((time, done) for done, time in reports)).left(running(run_dir), now)
    assert left is None or (list(left) == sorted(left) and left[0] > 0)


def test_a_reported_part_comes_before_earlier_runs_and_a_time_limit_bounds_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "gpusched.db")
    for number in range(3):
        over = replace(job(f"run-{number}", part(0.3)), state=JobState.SUCCEEDED, started=0.0, ended=5000.0)
        store.add(over)
    expectations, mine = Expectations(JobTable(store)), running(tmp_path)
    limited = running(tmp_path, time_limit_s=650.0)
    assert set(expectations.running(mine, 1500.0).ends) == {BEGAN + 5000}
    for now, done in ((1100.0, 0.1), (1500.0, 0.5)):
        report(tmp_path, time=now, done=done)
        expectations.read_reports([mine], now)
    assert sorted(set(expectations.running(mine, 1500.0).ends)) == [1900.0, 1950.0, 2000.0, 2075.0, 2200.0]
    assert set(expectations.running(limited, 1500.0).ends) == {1650.0}
    expectations.forget("run-1")
    assert set(expectations.running(mine, 1500.0).ends) == {BEGAN + 5000}
    store.close()


REPORTS = """
import time
from gpusched.channel import Progress
progress, began = Progress(), time.time()
while True:
    progress.report(done=min(0.9, (time.time() - began) / 10))
    time.sleep(0.1)
"""


def test_a_waiting_job_is_told_when_it_starts_by_the_reports_of_the_one_that_it_waits_for(daemon: Daemon) -> None:
    daemon.start()
    holder = daemon.submit(sys.executable, "-c", REPORTS, need=whole(1), machine="1x16GiB")
    daemon.wait(holder, JobState.RUNNING)
    progress = Path(daemon.job(holder).run_dir) / "progress.jsonl"
    until(lambda: progress.exists() and '"done":0.9' in progress.read_text(), "it has reported")
    waiting = daemon.submit("true", need=whole(1), machine="1x16GiB")
    # By the prior it would be an hour.
    until(lambda: re.search(r"expected to start in \d+s|in [12]m", str(daemon.job(waiting).why)), "the reports count")
