"""What goes wrong at one job costs no other its turn, its end or its place, and is shown where a person sees it."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gpusched.control.messages import Stop
from gpusched.daemon import arrays
from gpusched.daemon.state import MOST_FAULTS_LOGGED, DaemonState
from gpusched.model.array import Array
from gpusched.model.job import ProcessIdentity
from gpusched.model.status import JobState
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.stand_in.library import ROOT
from tests.storage.records import queued

FAULTY = Path(__file__).with_name("faulty_daemon.py")


def start_faulty(daemon: Daemon) -> None:
    daemon.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (daemon.state / "daemon.log").open("ab") as log:
        env = {**daemon.env, "PYTHONPATH": str(ROOT)}
        daemon.process = subprocess.Popen([sys.executable, str(FAULTY)], env=env, stderr=log)
    until(lambda: daemon.pid, "the daemon listens")


def simple_state(jobs: object) -> DaemonState:
    """The state of a daemon without a host."""
    nothing, starts = cast("Any", None), cast("Any", SimpleNamespace(forks=SimpleNamespace(forget=lambda _: None)))
    settings = cast("Any", SimpleNamespace(idle_after_s=1800.0, idle_below=1.0))
    return DaemonState(
        settings=settings, jobs=cast("Any", jobs), devices=nothing, starts=starts, spawn_delivery=nothing
    )


def test_a_job_that_is_cancelled_in_a_pass_over_the_queue_costs_those_of_other_machines_nothing(daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.state / "gate"
    bad = daemon.shell(f"while ! test -e {gate}; do sleep 0.05; done; exit 1")
    never = daemon.submit("true", after=(bad,))
    elsewhere = daemon.submit("true", machine="1x16GiB", after=(bad,))
    waits = daemon.submit("true", machine="1x16GiB", hold=True)
    gate.touch()

    states = [job.state for job in daemon.ended(never, elsewhere)]

    assert states == [JobState.CANCELLED] * 2
    until(lambda: daemon.job(waits).why, "the job of the described machine is looked at")
    assert daemon.pong().problems == ()
    assert "internal error" not in daemon.log


@pytest.mark.parametrize("function", ["launcher_exited", "plan_for", "prepare"])
def test_an_internal_error_at_one_queued_job_keeps_no_other_from_its_start(function: str, daemon: Daemon) -> None:
    start_faulty(daemon)

    faulty = daemon.submit("true", name=function, priority=5)
    others = [daemon.submit("true"), daemon.submit("true", machine="1x16GiB")]

    assert {job.state for job in daemon.ended(*others)} == {JobState.SUCCEEDED}
    until(lambda: "broken on purpose" in (daemon.job(faulty).why or ""), "it is shown why that one waits")
    assert any(f"of {faulty}: ZeroDivisionError" in problem for problem in daemon.pong().problems)
    assert daemon.log.count("Traceback") == 1

    daemon.ask(Stop(ids=(faulty,)))
    until(lambda: daemon.pong().problems == (), "what is over is no problem any more")


def test_an_internal_error_at_one_running_job_keeps_no_other_from_its_end(daemon: Daemon) -> None:
    start_faulty(daemon)

    faulty = daemon.submit("true", name="has_live_processes")
    other = daemon.submit("true")

    assert daemon.ended(other)[0].state is JobState.SUCCEEDED
    until(lambda: any(faulty in problem for problem in daemon.pong().problems), "it is shown")

    daemon.kill()
    daemon.start()
    assert daemon.ended(faulty)[0].state is JobState.SUCCEEDED


def test_an_internal_error_at_one_job_keeps_no_daemon_from_its_start(daemon: Daemon) -> None:
    daemon.start()
    faulty, other = daemon.submit("sleep", "600", name="settle"), daemon.submit("sleep", "600")
    daemon.wait(faulty, JobState.RUNNING)
    daemon.wait(other, JobState.RUNNING)
    daemon.kill()

    start_faulty(daemon)
    daemon.ask(Stop(ids=(faulty, other)))

    assert {job.state for job in daemon.ended(faulty, other)} == {JobState.CANCELLED}


def test_an_error_at_the_end_of_one_array_keeps_no_other_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(arrays, "Reading", no_thread)
    store = Store.open(tmp_path / "gpusched.db")
    state = simple_state(JobTable(store))
    owner = ProcessIdentity(pid=1, start=1)
    for number, owned_by in ((1, owner), (2, None), (3, owner)):
        one = queued(number)
        assert one.submission is not None
        owned = replace(one.submission, array=Array(count=0), owner=owned_by)
        state.jobs.add(replace(one, submission=owned))
        state.jobs.change(state.jobs.live[one.id])
    first, second, third = state.jobs.live

    arrays.finish_arrays(state)
    assert (set(state.jobs.live), state.jobs.arrays.changed) == ({first, third}, {first, third})
    assert {job for job, _ in state.faults} == {first, third}

    monkeypatch.setattr(arrays, "Reading", lambda *_: None)
    arrays.finish_arrays(state)
    assert (state.jobs.live, state.jobs.arrays.changed, state.faults) == ({}, set(), {})
    assert state.jobs.job(second).state is JobState.SUCCEEDED
    store.close()


def test_an_error_whose_text_changes_each_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    state = simple_state(SimpleNamespace(ended=lambda _, **_more: []))

    def fail(number: int) -> None:
        raise ValueError(number)

    for number in range(1000):
        assert not state.contain("run-1", "the end", partial(fail, number))

    assert len(caplog.records) == MOST_FAULTS_LOGGED
    assert "further ones are not logged" in caplog.text
    assert "ValueError: 999" in str(state.faults), "the latest is shown all the same"
    state.forget("run-1")
    assert (state.faults, state.faults_logged) == ({}, {})
