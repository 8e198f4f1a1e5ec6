import time
from pathlib import Path
from typing import Any

import pytest

from gpusched.control.messages import Done, Hold, Ping, Stop
from gpusched.errors import NeverFits, NotFound, UsageError
from gpusched.model.job import CommandRequest
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.stand_in.library import StandIn

HALF = CommandRequest(fraction=4000)


def test_a_command_runs_and_its_end_is_told(daemon: Daemon) -> None:
    daemon.start()
    good, bad = daemon.shell("exit 0"), daemon.shell("exit 3")
    told = daemon.ended(good, bad)
    assert [job.state for job in told] == [JobState.SUCCEEDED, JobState.FAILED]
    assert told[1].replicas[0].exit is not None
    assert told[1].replicas[0].exit.code == 3


def test_two_fractions_share_a_device_and_the_third_waits_with_the_reason(daemon: Daemon) -> None:
    daemon.start()
    first, second, third = (daemon.submit("sleep", "600", need=HALF, machine="1x16GiB") for _ in range(3))
    daemon.wait(first, JobState.RUNNING)
    daemon.wait(second, JobState.RUNNING)
    until(lambda: daemon.job(third).why, "the third is told why it waits")
    waiting = daemon.job(third)
    assert waiting.state is JobState.QUEUED
    assert first in (waiting.why or "") or second in (waiting.why or "")
    daemon.ask(Stop(ids=(first,)))
    daemon.wait(third, JobState.RUNNING)
    assert daemon.job(first).state is JobState.CANCELLED


def test_what_never_fits_is_refused_at_once(daemon: Daemon) -> None:
    daemon.start()
    with pytest.raises(NeverFits):
        daemon.submit("true", need=CommandRequest(devices=2), machine="1x16GiB")
    assert not daemon.jobs()
    taken = daemon.submit("true")  # so that the directory of all jobs is there
    assert [path.name for path in (daemon.state / "jobs").iterdir()] == [taken]


def test_a_higher_priority_goes_first_and_then_the_older(daemon: Daemon) -> None:
    daemon.start()
    whole = CommandRequest(devices=1)
    holder = daemon.submit("sleep", "600", need=whole, machine="1x16GiB")
    daemon.wait(holder, JobState.RUNNING)
    order = daemon.state / "order"
    low, old, high = (
        daemon.shell(f"echo {name} >> {order}", need=whole, machine="1x16GiB", priority=priority)
        for name, priority in (("low", -5), ("old", 0), ("high", 7))
    )
    daemon.ask(Stop(ids=(holder,)))
    daemon.ended(low, old, high)
    assert order.read_text().split() == ["high", "old", "low"]


def test_a_job_starts_after_another_has_succeeded_and_not_if_it_fails(daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.state / "gate"
    first = daemon.shell(f"while ! test -e {gate}; do sleep 0.05; done")
    bad = daemon.shell("exit 1")
    then = daemon.submit("true", after=(first,))
    never = daemon.submit("true", after=(first, bad))
    after_never = daemon.submit("true", after=(never,))
    until(lambda: first in (daemon.job(then).why or ""), "it waits for the first")
    gate.touch()
    assert daemon.ended(then)[0].state is JobState.SUCCEEDED
    for job in daemon.ended(never, after_never):
        assert job.state is JobState.CANCELLED
        assert job.started is None
    assert bad in (daemon.job(never).message or "")


def test_a_job_after_one_that_nobody_knows_is_refused(daemon: Daemon) -> None:
    daemon.start()
    with pytest.raises(NotFound, match="run-77"):
        daemon.submit("true", after=("run-77",))


def test_a_held_job_waits_until_it_is_released(daemon: Daemon) -> None:
    daemon.start()
    held, free = daemon.submit("true", hold=True), daemon.submit("true")
    daemon.ended(free)
    assert daemon.job(held).state is JobState.QUEUED
    assert daemon.job(held).held
    assert "held" in (daemon.job(held).why or "")
    daemon.ask(Hold(ids=(held,), held=False))
    assert daemon.ended(held)[0].state is JobState.SUCCEEDED
    with pytest.raises(UsageError):
        daemon.ask(Hold(ids=(held,)))


def test_a_job_does_not_start_before_its_time(daemon: Daemon) -> None:
    daemon.start()
    at = time.time() + 1.5
    job = daemon.submit("true", at=at)
    (told,) = daemon.ended(job)
    assert told.started is not None
    assert told.started >= at


def test_stop_cancels_what_waits_and_ends_what_runs(daemon: Daemon) -> None:
    daemon.start()
    running, waiting = daemon.submit("sleep", "600"), daemon.submit("true", hold=True)
    daemon.wait(running, JobState.RUNNING)
    answer = daemon.ask(Stop(everything=True))
    assert isinstance(answer, Done)
    assert len(answer.report) == 2
    assert [job.state for job in daemon.ended(running, waiting)] == [JobState.CANCELLED] * 2
    assert "gpusched stop" in (daemon.job(running).message or "")
    with pytest.raises(NotFound):
        daemon.ask(Stop(ids=("run-99",)))


def test_a_job_that_was_stopped_while_it_started_never_runs_on(daemon: Daemon) -> None:
    daemon.start()
    for _ in range(5):
        job = daemon.submit("sleep", "600")
        until(lambda: daemon.job(job).state is not JobState.QUEUED, "it starts")  # noqa: B023
        daemon.ask(Stop(ids=(job,)))
        assert daemon.ended(job)[0].state is JobState.CANCELLED


def test_a_time_limit_ends_a_job(daemon: Daemon) -> None:
    daemon.start()
    (told,) = daemon.ended(daemon.submit("sleep", "600", time_limit_s=0.5))
    assert told.state is JobState.FAILED
    assert "time limit" in (told.message or "")


def test_a_command_that_is_not_there_is_a_failed_job(daemon: Daemon) -> None:
    daemon.start()
    (told,) = daemon.ended(daemon.submit("/no/such/program"))
    assert told.state is JobState.FAILED


def test_a_driver_that_hangs_holds_up_no_answer_and_the_other_devices_are_used(
    tmp_path: Path, stand_in: StandIn
) -> None:
    host = stand_in.host("gpus 2\nset * used 0\nfault nvmlDeviceGetTemperature 0 sleep 600\n", driver_patience_s=2)
    names = ("LD_LIBRARY_PATH", "NVML_STAND_IN", "GPUSCHED_DRIVER_PATIENCE")
    daemon = Daemon(tmp_path, {name: host.env[name] for name in names})
    try:
        daemon.start()
        client = daemon.client()
        job = daemon.submit("sleep", "600", need=CommandRequest(devices=1))
        for _ in range(10):
            assert client.ask(Ping())
        daemon.wait(job, JobState.RUNNING)
        until(lambda: daemon.job(job).replicas, "its place is told")
        assert daemon.job(job).replicas[0].device_index == 1
    finally:
        daemon.end()


@pytest.mark.parametrize(
    "changes",
    [
        {"cwd": "relative"},
        {"environ": {"A": "a\0b"}},
        {"environ": {"A=B": ""}},
        {"command": None},
        {"machine": "no-such-machine"},
    ],
)
def test_a_submission_that_makes_no_sense_is_refused(daemon: Daemon, changes: dict[str, Any]) -> None:
    daemon.start()
    with pytest.raises(UsageError):
        daemon.submit("true", **changes)
    assert daemon.jobs() == ()
