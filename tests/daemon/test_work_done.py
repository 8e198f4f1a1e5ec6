"""How long a job runs on, by the part of its work that its leader reports."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.daemon.expectations import Expectations
from gpusched.daemon.job import Job
from gpusched.daemon.job_table import JobTable
from gpusched.daemon.store import Store
from gpusched.daemon.work_done import WorkDone
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon, until
from tests.daemon.queueing import job, part, whole

BEGAN = 1000.0


def running(run_dir: Path, **fields: Any) -> Job:
    found = replace(job("run-1", part(0.3), **fields), run_dir=str(run_dir), state=JobState.RUNNING, started=BEGAN)
    return replace(found, attempt=1)


def report(run_dir: Path, **line: object) -> None:
    with (run_dir / "progress.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def middle(work: WorkDone, now: float) -> float | None:
    left = work.left("run-1", now)
    return None if left is None else left[len(left) // 2]


def test_a_job_runs_on_at_the_speed_that_its_reports_show(tmp_path: Path) -> None:
    work, mine = WorkDone(), running(tmp_path)
    report(tmp_path, time=1100.0, done=0.25)  # 100 s of it to begin with, or weights of an earlier run
    work.read([mine], 1100.0)
    assert work.left("run-1", 1100.0) is None
    report(tmp_path, time=1200.0, done=0.5)
    work.read([mine], 1200.0)
    assert middle(work, 1200.0) == 200
    assert middle(work, 1300.0) == 100


def test_reports_are_read_every_ten_seconds_and_also_after_a_clock_was_set_back(tmp_path: Path) -> None:
    work, mine = WorkDone(), running(tmp_path)
    for now, done, left in ((1100.0, 0.1, None), (1105.0, 0.9, None), (1110.0, 0.2, 80.0), (1050.0, 0.2, None)):
        report(tmp_path, time=now, done=done)
        work.read([mine], now)
        assert middle(work, now) == left, now


def test_work_that_begins_anew_counts_from_there(tmp_path: Path) -> None:
    work, mine = WorkDone(), running(tmp_path)
    for now, done in ((1100.0, 0.1), (1200.0, 0.8), (1300.0, 0.2)):
        report(tmp_path, time=now, done=done)
        work.read([mine], now)
    assert work.left("run-1", 1300.0) is None
    report(tmp_path, time=1400.0, done=0.3)
    work.read([mine], 1400.0)
    assert middle(work, 1400.0) == 700


def test_what_an_earlier_attempt_reported_is_nothing_to_the_next(tmp_path: Path) -> None:
    work, mine = WorkDone(), running(tmp_path)
    for now, done in ((1100.0, 0.1), (1200.0, 0.8)):
        report(tmp_path, time=now, done=done)
        work.read([mine], now)
    again = replace(mine, attempt=2, started=1300.0)
    work.read([again], 1310.0)
    assert work.left("run-1", 1310.0) is None


USELESS: list[dict[str, object]] = [{"step": 7}, {"done": "0.5"}, {"done": None}, {"done": [1]}, {"done": 1.5}]


def test_a_report_of_something_else_is_of_no_use(tmp_path: Path) -> None:
    for number, line in enumerate(USELESS):
        work, run_dir = WorkDone(), tmp_path / str(number)
        run_dir.mkdir()
        report(run_dir, time=1100.0, done=0.1)
        work.read([running(run_dir)], 1100.0)
        report(run_dir, time=1200.0, **line)
        work.read([running(run_dir)], 1200.0)
        assert work.left("run-1", 1200.0) is None, line


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(BEGAN, 1e6)), max_size=4), st.floats(0, 1e6))
def test_whatever_is_reported_something_is_left_and_it_rises(
    tmp_path_factory: object, reports: list[tuple[float, float]], now: float
) -> None:
    run_dir = tmp_path_factory.mktemp("job")  # type: ignore[attr-defined]
    work, mine = WorkDone(), running(run_dir)
    for done, time in reports:
        report(run_dir, time=time, done=done)
        work.read([mine], time)
    left = work.left("run-1", now)
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
    progress.report(done=(time.time() - began) / 400)
    time.sleep(0.2)
"""


def test_a_waiting_job_is_told_when_it_starts_by_the_reports_of_the_one_that_it_waits_for(daemon: Daemon) -> None:
    daemon.start()
    holder = daemon.submit(sys.executable, "-c", REPORTS, need=whole(1), machine="1x16GiB")
    daemon.wait(holder, JobState.RUNNING)
    waiting = daemon.submit("true", need=whole(1), machine="1x16GiB")
    until(lambda: "expected to start in" in str(daemon.job(waiting).why), "the start is expected")
    assert re.search(r"expected to start in (1h|[45]\dm)", str(daemon.job(waiting).why))  # of the prior: an hour
    until(lambda: re.search(r"expected to start in [56]m", str(daemon.job(waiting).why)), "the reports are known")
