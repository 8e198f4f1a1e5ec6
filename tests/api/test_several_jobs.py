"""gpusched.api.queue: several jobs at once, by their ids."""

import os
from pathlib import Path

import pytest

import gpusched
from gpusched.api import queue
from gpusched.api.commands import command_submission
from gpusched.errors import NotFound, TimedOut, UsageError
from gpusched.settings import load_settings
from tests.cli.command import Command


def sleeping(number: int, *, hold: bool = False) -> list[str]:
    return [gpusched.run(["sleep", "600"], num_gpus=0, hold=hold).id for _ in range(number)]


@pytest.mark.usefixtures("command")
def test_several_jobs_are_held_and_released_at_once_and_come_back_as_they_are_then() -> None:
    before = gpusched.run(["sleep", "600"], num_gpus=0)
    ids = [gpusched.run(["true"], num_gpus=0, after_any=before.id).id for _ in range(2)]

    held = queue.hold(ids)
    assert [job.held for job in held.jobs] == [True, True]
    assert len(held.report) == 2
    assert [job.held for job in queue.release(ids).jobs] == [False, False]

    queue.stop(before.id, kill=True)
    assert {job.state for job in queue.as_completed(ids)} == {"succeeded"}


@pytest.mark.usefixtures("command")
def test_stopping_everything_returns_the_jobs_as_they_were_and_each_end_comes_back() -> None:
    assert queue.stop(everything=True) == queue.Change()
    ids = sleeping(2, hold=True)

    with pytest.raises(TimedOut):
        next(queue.as_completed(ids, timeout=0))
    stopped = queue.stop(everything=True, kill=True)

    assert [(job.id, job.state) for job in stopped.jobs] == [(job, "queued") for job in ids]
    assert {(job.id, job.state) for job in queue.as_completed(ids)} == {(job, "cancelled") for job in ids}


@pytest.mark.usefixtures("command")
def test_ids_are_found_by_how_they_begin_and_one_id_needs_no_list() -> None:
    (job,) = sleeping(1, hold=True)

    assert queue.job_ids("ru") == queue.job_ids() == [job]
    assert queue.job_ids("snake") == []
    assert queue.find_jobs(job) == queue.find_jobs([job])
    assert queue.find_jobs().problem is None
    queue.stop(job)


def test_a_variable_that_is_no_utf_8_is_left_out_and_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", "\udcff")
    command.env["ODD"] = "\udcff"

    submitted = queue.submit(command_submission(["true"], {"num_gpus": 0}, load_settings(os.environ)))
    typed = command.run("run", "-d", "--num-gpus", "0", "--", "true")
    found = gpusched.run(["true"], num_gpus=0), gpusched.submit(command.toy("fails.py"), machine="cpu", hold=True)

    assert submitted.left_out == ("ODD",)
    assert typed.stderr.startswith("gpusched: warning: the variable 'ODD' is no UTF-8 and is left out\n")
    assert [job.warnings for job in found] == [("the variable 'ODD' is no UTF-8 and is left out",)] * 2
    ids = [submitted.job.id, typed.stdout.strip()]
    assert {job.state for job in queue.as_completed(ids)} == {"succeeded"}


@pytest.mark.usefixtures("command")
def test_wrong_ids_are_refused() -> None:
    with pytest.raises(NotFound):
        queue.hold("run-1")
    with pytest.raises(UsageError):
        queue.stop()
    with pytest.raises(UsageError):
        queue.stop("run-1", everything=True)
    with pytest.raises(UsageError):
        queue.release([3])  # type: ignore[list-item]
    for change in (queue.hold, queue.release):
        with pytest.raises(UsageError):
            change([])
    with pytest.raises(UsageError):
        queue.as_completed("run-1", timeout=-1)


@pytest.mark.usefixtures("command")
def test_a_job_stands_for_its_id() -> None:
    first = gpusched.run(["true"], num_gpus=0, hold=True)
    second = gpusched.run(["true"], num_gpus=0, hold=True, after=first)
    third = gpusched.run(["true"], num_gpus=0, after_any=[first, second.id])

    assert [job.held for job in queue.hold(third).jobs] == [True]
    assert [job.held for job in queue.release([first, second, third.status()]).jobs] == [False, False, False]
    ended = queue.as_completed([first, second, third])
    assert {job.id for job in ended} == {first.id, second.id, third.id}
    assert [job.id for job in queue.stop(first).jobs] == [first.id]


@pytest.mark.usefixtures("command")
def test_the_end_of_a_later_job_is_yielded_while_the_first_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(queue, "_ANSWER_S", 60.0)
    gate = tmp_path / "gate"
    slow = gpusched.run(["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"], num_gpus=0)
    quick = gpusched.run(["true"], num_gpus=0)
    ends = queue.as_completed([slow, quick])

    assert next(ends).id == quick.id
    gate.touch()
    assert [job.id for job in ends] == [slow.id]
