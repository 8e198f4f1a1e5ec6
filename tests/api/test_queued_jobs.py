"""submit and run: jobs in the daemon's queue as Python sees them."""

import threading
from collections.abc import Sequence
from html import escape

import pytest

import gpusched
from gpusched.api.history import remove
from gpusched.errors import NeverFits, NotFound, TimedOut
from gpusched.execution.daemon_link import Link
from gpusched.model.status import JobStatus
from tests.cli.command import Command
from tests.patience import until

M = "1x16GiB"


def test_a_third_job_waits_where_two_have_the_device_and_its_reason_has_the_numbers(command: Command) -> None:
    first, second, third = (gpusched.run(["sleep", "600"], fraction=0.4, machine=M) for _ in range(3))
    until(lambda: gpusched.jobs(state="running") == [first, second], "two run")

    assert gpusched.jobs(state="queued") == [third]
    until(lambda: "MiB" in (third.why or ""), "a pass has seen it")
    why = (third.why or "").partition("; expected to start ")[0]  # what follows is said anew by each pass
    assert why in str(third)
    until(lambda: escape(why) in gpusched.status()._repr_html_(), "the queue has answered in the second that it has")
    first.stop()
    assert first.wait().state == "cancelled"
    until(lambda: third.status().state == "running", "the third runs in the place of the first")
    assert command.running()


def test_a_workload_in_the_queue_is_held_released_followed_and_waited_for(command: Command) -> None:
    job = gpusched.submit(command.toy("reports.py"), machine=M, hold=True, priority=3, time_limit="1h", name="mine")
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(job.logs("learner.0", follow=True)))
    reader.start()

    assert (job.status().held, job.status().priority, job.status().time_limit_s) == (True, 3, 3600)
    job.release()
    until(lambda: job.status().state == "running", "it runs")
    job.run_dir.joinpath("end").touch()

    assert job.wait().state == "succeeded"
    reader.join()
    assert lines[1:] == ["first line", "<b>last</b> line"]


@pytest.mark.usefixtures("command")
def test_following_a_job_that_waits_yields_what_it_writes_once_it_runs() -> None:
    job = gpusched.run(["sh", "-c", "echo one; echo two; printf three"], num_gpus=0, hold=True)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(job.logs(follow=True)))
    reader.start()

    assert list(job.logs()) == []
    job.release()
    reader.join()

    assert lines[1:] == ["one", "two", "three"]
    assert list(job.logs(lines=2)) == ["two", "three"]
    with pytest.raises(NotFound):
        job.logs("actor.0")


@pytest.mark.usefixtures("command")
def test_the_logs_of_a_job_come_as_they_are_to_its_end() -> None:
    job = gpusched.run(["sh", "-c", "printf 'one\\r\\n\\377'"], num_gpus=0, hold=True)

    with pytest.raises(NotFound):
        next(job.log_pieces())
    job.release()
    pieces = list(job.log_pieces(follow=True))

    assert job.status().state == "succeeded"
    assert b"".join(piece for _, _, piece in pieces).endswith(b" ---\none\r\n\xff")
    assert {(name, width) for name, width, _ in pieces} == {("command.0", 0)}
    assert [index for index, (_, _, piece) in enumerate(pieces) if not piece] == [len(pieces) - 1]


@pytest.mark.usefixtures("command")
def test_holding_a_job_that_waits_keeps_it_there_until_it_is_released() -> None:
    before = gpusched.run(["sleep", "600"], num_gpus=0)
    job = gpusched.run(["true"], num_gpus=0, after_any=before.id)

    job.hold()
    before.stop(kill=True)
    before.wait()

    with pytest.raises(TimedOut) as caught:
        job.wait(timeout=0)
    assert isinstance(caught.value, TimeoutError)
    assert job.status().held
    job.release()
    assert job.wait(timeout=600).state == "succeeded"
    job.stop()
    assert job.status().state == "succeeded"


@pytest.mark.usefixtures("command")
def test_what_never_fits_is_refused_and_not_queued() -> None:
    with pytest.raises(NeverFits):
        gpusched.run(["true"], memory="17GiB", machine=M)

    assert gpusched.jobs(ended=5) == []


@pytest.mark.usefixtures("command")
def test_jobs_that_ended_are_listed_as_many_as_are_asked_for_latest_first() -> None:
    jobs = [gpusched.run(["true"], num_gpus=0) for _ in range(3)]
    for job in jobs:
        job.wait()

    assert gpusched.jobs(ended=0) == []
    assert gpusched.jobs("succeeded", ended=2) == gpusched.jobs(ended=3)[:2]
    assert set(gpusched.jobs(ended=3)) == set(jobs)
    assert gpusched.job(jobs[0].id) == jobs[0]


@pytest.mark.usefixtures("command")
def test_a_job_that_is_removed_while_those_that_failed_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(command: str) -> gpusched.Job:
        job = gpusched.run([command], num_gpus=0)
        job.wait()
        return job

    first, second, _later = over("false"), over("false"), over("true")
    asked: list[tuple[str, ...]] = []
    honest = Link.jobs

    def jobs(link: Link, ids: Sequence[str] = (), ended: int = 0) -> tuple[JobStatus, ...]:
        if ids and not asked:
            remove(second.id)
        asked.extend([tuple(ids)] if ids else [])
        return honest(link, ids, ended)

    monkeypatch.setattr(Link, "jobs", jobs)
    assert gpusched.jobs("failed", ended=1) == [first]
    assert asked == [(second.id,), (first.id,)]


@pytest.mark.parametrize("with_daemon", [True, False])
def test_those_that_failed_are_listed_also_behind_later_ones_that_did_not(with_daemon: bool, command: Command) -> None:
    def over(command: str) -> gpusched.Job:
        job = gpusched.run([command], num_gpus=0)
        job.wait()
        return job

    failed, later = [over("false") for _ in range(3)], [over("true") for _ in range(2)]
    if not with_daemon:
        command.run("daemon", "stop")

    assert gpusched.jobs("failed", ended=2) == failed[:0:-1]
    assert set(gpusched.jobs("failed")) == set(failed)
    assert set(gpusched.jobs("succeeded", ended=2)) == set(later)
    assert gpusched.jobs("failed", ended=0) == gpusched.jobs("running") == []
