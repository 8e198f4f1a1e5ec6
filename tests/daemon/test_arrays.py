"""Arrays in the queue: each member runs once, so many at a time; an array is stopped, held, resumed and removed."""

import os
import sqlite3
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpusched.api.history import remove
from gpusched.api.queue import as_completed
from gpusched.control.messages import (
    Await,
    Done,
    Edit,
    Explain,
    Explained,
    Hold,
    Jobs,
    ListJobs,
    Resume,
    Select,
    Selected,
    Stop,
    Submitted,
)
from gpusched.errors import NotFound, UsageError
from gpusched.execution.listing import jobs_on_disk
from gpusched.model.array import Array
from gpusched.model.job import CommandRequest, ProcessIdentity, QueueChange
from gpusched.model.selection import Selection
from gpusched.model.status import ArrayStatus, JobState, JobStatus
from gpusched.model.why import Why
from tests.daemon.daemons import Daemon
from tests.patience import until

PART = CommandRequest(fraction=2500)


def array(daemon: Daemon, script: str, count: int, at_most: int | None = None, **changes: Any) -> str:
    """Queue an array of a shell's script on a described machine of 16 places; $1 is the member's number."""
    members = Array(count=count, at_most=at_most)
    changes = {"machine": "p3.8xlarge", "need": PART, "array": members, **changes}
    return daemon.submit("sh", "-c", script, "sh", "{index}", **changes)


def members(daemon: Daemon, job: str) -> ArrayStatus:
    found = daemon.job(job).array
    assert found is not None
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_each_member_runs_once_and_never_more_than_asked_for_at_the_same_time(daemon: Daemon, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    job = array(daemon, f"echo begin-$1 >> {ran}; sleep 0.1; echo end-$1 >> {ran}", 12, at_most=2)
    (over,) = daemon.ended(job)
    assert (over.state, over.array) == (JobState.SUCCEEDED, ArrayStatus(count=12, succeeded=12, at_most=2))
    assert sorted(lines(ran)) == sorted(f"{what}-{number}" for number in range(12) for what in ("begin", "end"))
    live = 0
    for line in lines(ran):
        live += 1 if line.startswith("begin") else -1
        assert live <= 2


def test_whenever_the_daemon_is_killed_no_member_is_lost_and_none_runs_twice(daemon: Daemon, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    job = array(daemon, f"echo $1 >> {ran}", 40)

    def ran_at_least(number: int) -> bool:
        return len(lines(ran)) >= number

    for kill in range(1, 5):
        until(partial(ran_at_least, 8 * kill), "more members have run")
        daemon.kill()
        daemon.start()
    (over,) = daemon.ended(job)
    assert over.array == ArrayStatus(count=40, succeeded=40)
    assert Counter(lines(ran)) == Counter(map(str, range(40)))


def test_a_member_that_has_not_begun_is_no_directory_and_no_row(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 100_000, at_most=1)
    until(lambda: members(daemon, job).live == 1, "the first member lives")
    assert sorted(path.name for path in (daemon.state / "jobs").iterdir()) == [job, f"{job}[0]"]
    daemon.ask(Stop(ids=(job,), kill=True))
    daemon.ended(job)
    daemon.kill()
    with sqlite3.connect(daemon.state / "gpusched.db") as table:
        assert table.execute("SELECT count(*) FROM jobs").fetchone() == (2,)


def test_what_failed_and_what_never_began_runs_when_it_is_resumed_and_keeps_its_directory(
    daemon: Daemon, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    script = (
        f'echo $1 >> {ran}; echo $GPUSCHED_ATTEMPT >> "$GPUSCHED_RUN_DIR/attempts"; test $1 != 2 -o -e {tmp_path}/go'
    )
    job = array(daemon, script, 5, at_most=1)
    (over,) = daemon.ended(job)
    assert (over.state, over.message) == (JobState.FAILED, "1 failed")
    again = daemon.ask(Resume(id=job, environ=daemon.env))
    assert isinstance(again, Submitted)
    assert daemon.ended(job)[0].state is JobState.FAILED
    (tmp_path / "go").touch()
    daemon.ask(Resume(id=job, environ=daemon.env))
    assert daemon.ended(job)[0].array == ArrayStatus(count=5, succeeded=5, at_most=1)
    assert Counter(lines(ran)) == {"0": 1, "1": 1, "2": 3, "3": 1, "4": 1}
    assert lines(daemon.state / "jobs" / f"{job}[2]" / "attempts") == ["0", "1", "2"]
    with pytest.raises(UsageError, match="all members"):
        daemon.ask(Resume(id=job, environ=daemon.env))


def test_a_stop_ends_those_that_live_and_lets_no_other_begin(daemon: Daemon, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    job = array(daemon, f"echo $1 >> {ran}; sleep 1000", 20, at_most=3)
    until(lambda: len(lines(ran)) == 3, "three members run")
    daemon.ask(Stop(ids=(job,)))
    (over,) = daemon.ended(job)
    assert (over.state, over.array) == (JobState.CANCELLED, ArrayStatus(count=20, waiting=17, cancelled=3, at_most=3))
    assert len(lines(ran)) == 3


def test_a_stop_of_an_array_and_of_its_members_at_once_is_one_stop(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 30)
    until(lambda: members(daemon, job).live, "some live")
    daemon.ask(Stop(ids=(job, *(f"{job}[{number}]" for number in range(members(daemon, job).live)))))
    (over,) = daemon.ended(job)
    assert over.array is not None
    assert (over.array.live, over.array.ended + over.array.waiting) == (0, 30)


def test_what_an_array_is_to_follow_after_all_and_fails_ends_it_with_its_members(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 5, at_most=1)
    until(lambda: members(daemon, job).live == 1, "the first lives")
    failing = daemon.submit("false")
    daemon.ended(failing)
    daemon.ask(Edit(ids=(job,), change=QueueChange(after=(failing,))))
    (over,) = daemon.ended(job)
    assert (over.state, over.array) == (JobState.CANCELLED, ArrayStatus(count=5, waiting=4, cancelled=1, at_most=1))
    assert "was to follow" in (over.message or "")
    assert daemon.job(f"{job}[0]").state is JobState.CANCELLED


def test_an_array_whose_predecessor_fails_begins_nothing_more(daemon: Daemon, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    first = daemon.submit("false", hold=True)
    job = array(daemon, f"echo $1 >> {ran}", 100, after=(first,))
    daemon.ask(Hold(ids=(first,), held=False))
    (over,) = daemon.ended(job)
    assert (over.state, over.array) == (JobState.CANCELLED, ArrayStatus(count=100, waiting=100))
    assert not ran.exists()


def test_an_array_that_is_resumed_twice_with_one_token_is_resumed_once(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "false", 2)
    daemon.ended(job)
    again = Resume(id=job, environ=daemon.env, token="1")
    for kills in (False, True):
        assert isinstance(daemon.ask(again), Submitted)
        if kills:
            daemon.kill()
            daemon.start()
        answer = daemon.ask(again)
        assert isinstance(answer, Submitted)
        assert answer.id == job
    (over,) = daemon.ended(job)
    assert [daemon.job(f"{job}[{number}]").attempt for number in range(2)] == [1, 1]
    assert (over.array and over.array.failed) == 2


def test_what_members_wrote_is_kept_also_of_those_that_were_to_run_again(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "echo $1 > $GPUSCHED_RUN_DIR/weights; false", 3)
    daemon.ended(job)
    daemon.ask(Resume(id=job, environ=daemon.env, token="1"))
    daemon.ask(Stop(ids=(job,)))
    daemon.ended(job)
    assert remove(job, keep_results=True, settings=daemon.settings).ids == (job,)
    kept = sorted((daemon.state / "results").glob("*/weights"))
    assert [(path.parent.name, path.read_text()) for path in kept] == [(f"{job}[{n}]", f"{n}\n") for n in range(3)]


def test_an_array_that_runs_is_among_those_of_which_something_waits_as_long_as_that_is_so(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 2, at_most=1, group="sweeps")
    until(lambda: members(daemon, job).live == 1, "the first runs")

    def waiting(*names: str) -> tuple[str, ...]:
        answer = daemon.ask(Select(jobs=Selection(names=names, waits=True, group="sweeps")))
        assert isinstance(answer, Selected)
        return answer.ids

    assert waiting("run-*") == waiting(job) == waiting() == (job,)
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    until(lambda: members(daemon, job).waiting == 0, "the last runs")
    assert waiting("run-*") == waiting() == ()


def test_an_array_that_was_resumed_stopped_and_removed_leaves_no_member_behind(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "false", 4)
    daemon.ended(job)
    daemon.ask(Resume(id=job, environ=daemon.env))
    daemon.ask(Stop(ids=(job,)))
    daemon.ended(job)
    assert remove(job, settings=daemon.settings).ids == (job,)
    daemon.kill()
    daemon.start()
    assert daemon.ask(ListJobs(ended=100)) == Jobs(jobs=())
    assert list((daemon.state / "jobs").iterdir()) == []


def test_an_array_that_ended_within_the_hour_is_listed_for_a_status_also_by_the_next_daemon(daemon: Daemon) -> None:
    def listed() -> list[tuple[str, JobState, ArrayStatus | None]]:
        answer = daemon.ask(ListJobs(ended=0, ended_arrays=True))
        assert isinstance(answer, Jobs)
        return [(job.id, job.state, job.array) for job in answer.jobs]

    daemon.start()
    assert listed() == []
    job = array(daemon, "false", 2)
    daemon.ended(job)
    daemon.ended(daemon.submit("true"))
    over = [(job, JobState.FAILED, ArrayStatus(count=2, failed=2))]
    assert listed() == over
    daemon.kill()
    daemon.start()
    assert listed() == over
    daemon.ask(Resume(id=job, environ=daemon.env))
    daemon.ended(job)
    assert listed() == over, "once, although it ended twice"
    remove(job, settings=daemon.settings)
    assert listed() == []


def ended_arrays(daemon: Daemon) -> list[tuple[str, JobState]]:
    answer = daemon.ask(ListJobs(ended=0, ended_arrays=True))
    assert isinstance(answer, Jobs)
    return [(one.id, one.state) for one in answer.jobs]


def test_an_array_that_was_cancelled_before_it_began_is_listed_for_a_status_also_by_the_next_daemon(
    daemon: Daemon,
) -> None:
    daemon.start()
    assert ended_arrays(daemon) == []
    job = array(daemon, "true", 2, at=time.time() + 3600)
    daemon.ask(Stop(ids=(job,)))
    daemon.ended(job)
    assert ended_arrays(daemon) == [(job, JobState.CANCELLED)]
    daemon.kill()
    daemon.start()
    assert ended_arrays(daemon) == [(job, JobState.CANCELLED)]


def test_an_executor_of_which_nothing_was_asked_is_not_listed_for_a_status(daemon: Daemon) -> None:
    daemon.start()
    assert ended_arrays(daemon) == []
    job = daemon.submit("true", array=Array(count=0, open=True), owner=ProcessIdentity(pid=os.getpid(), start=1))
    daemon.ended(job)
    assert ended_arrays(daemon) == []
    daemon.kill()
    daemon.start()
    assert ended_arrays(daemon) == []


def test_a_name_that_another_took_meanwhile_stays_that_of_the_other(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "false", 1, name="train")
    daemon.ended(job)
    other = daemon.submit("sleep", "1000", name="train")
    daemon.ask(Resume(id=job, environ=daemon.env))
    assert (daemon.job(other).name, daemon.job(job).name) == ("train", "train.2")


def test_an_array_that_runs_is_among_those_that_run_and_who_asks_why_is_answered_at_once(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 1)
    until(lambda: members(daemon, job).live == 1, "it runs")

    def selected(state: JobState) -> tuple[str, ...]:
        answer = daemon.ask(Select(jobs=Selection(states=(state,))))
        assert isinstance(answer, Selected)
        return answer.ids

    assert (selected(JobState.RUNNING), selected(JobState.QUEUED)) == ((job,), ())
    answer = daemon.ask(Explain(id=job, wait_s=60.0))
    assert isinstance(answer, Explained)
    assert answer.why.job.state is JobState.RUNNING


def test_who_asks_why_a_member_waits_sees_those_before_it_and_when_it_starts(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 100, at_most=1)
    until(lambda: members(daemon, job).live == 1, "the first runs")

    def why() -> Why:
        answer = daemon.ask(Explain(id=f"{job}[90]", wait_s=60.0))
        assert isinstance(answer, Explained)
        return answer.why

    until(lambda: why().place == 90, "a pass has seen that the first runs")
    found = why()
    assert (found.job.id, found.job.state) == (f"{job}[90]", JobState.QUEUED)
    assert (found.waiting, len(found.ahead)) == (99, 89)
    assert found.starts


def test_a_member_that_is_stopped_before_it_has_begun_never_begins_until_the_array_is_resumed(
    daemon: Daemon, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    job = array(daemon, f"echo $1 >> {ran}; test $1 != 0 || sleep 1000", 4, at_most=1)
    until(lambda: lines(ran) == ["0"], "the first runs")
    waits = daemon.job(f"{job}[2]")
    assert (waits.state, waits.why) == (JobState.QUEUED, daemon.job(job).why)

    daemon.ask(Stop(ids=(f"{job}[2]",)))

    assert daemon.job(f"{job}[2]").state is JobState.CANCELLED
    assert members(daemon, job) == ArrayStatus(count=4, waiting=2, live=1, cancelled=1, at_most=1)
    daemon.kill()
    daemon.start()
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    daemon.ended(job)
    assert lines(ran) == ["0", "1", "3"]
    daemon.ask(Resume(id=job, environ=daemon.env))
    until(lambda: lines(ran) == ["0", "1", "3", "0"], "the first runs again")
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    daemon.ended(job)
    assert lines(ran)[4:] == ["2"]


def test_who_waits_for_members_that_have_not_begun_waits_for_their_ends_or_for_that_of_the_array(
    daemon: Daemon,
) -> None:
    daemon.start()
    job = array(daemon, "test $1 = 1 || sleep 1000", 4, at_most=1)
    until(lambda: members(daemon, job).live == 1, "the first runs")
    (waits,) = asked_for_ends(daemon, f"{job}[1]", wait_s=0.01)
    assert waits.state is JobState.QUEUED
    ends = as_completed((f"{job}[1]", f"{job}[3]"), settings=daemon.settings)
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    first = next(ends)
    assert (first.id, first.state) == (f"{job}[1]", JobState.SUCCEEDED)
    daemon.ask(Stop(ids=(job,)))
    (last,) = ends
    assert (last.id, last.state, last.message) == (f"{job}[3]", JobState.CANCELLED, "it never began")


def asked_for_ends(daemon: Daemon, *ids: str, wait_s: float) -> tuple[JobStatus, ...]:
    answer = daemon.ask(Await(ids=ids, wait_s=wait_s))
    assert isinstance(answer, Jobs)
    return answer.jobs


def test_members_of_an_array_that_is_stopping_can_still_be_shown_and_killed(daemon: Daemon, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    daemon.start()
    job = array(daemon, f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done", 4, at_most=1, stop_grace_s=1000.0)
    until(ready.exists, "the first runs")
    daemon.ask(Stop(ids=(job,)))
    shown = daemon.ask(Select(jobs=Selection(names=(f"{job}[0-3]",), unbegun=True)))
    assert shown == Selected(ids=(f"{job}[0]",))
    answer = daemon.ask(Stop(ids=tuple(f"{job}[{number}]" for number in range(4)), kill=True))
    assert answer == Done(report=(f"{job}[0] is stopping", *(f"{job}[{number}] is cancelled" for number in (1, 2, 3))))
    daemon.ended(job)


def test_names_of_members_mean_also_those_that_have_not_begun_where_that_is_asked_for(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "sleep 1000", 30_000, at_most=1)
    until(lambda: members(daemon, job).live == 1, "the first runs")

    def selected(name: str) -> tuple[str, ...]:
        answer = daemon.ask(Select(jobs=Selection(names=(name,), unbegun=True)))
        assert isinstance(answer, Selected)
        return answer.ids

    assert selected(f"{job}[]") == (f"{job}[0]",)
    assert selected(f"{job}[0-2]") == tuple(f"{job}[{number}]" for number in range(3))
    assert selected(f"{job}[29999-]") == selected(f"{job}[29999]") == (f"{job}[29999]",)
    with pytest.raises(NotFound, match="no member"):
        selected(f"{job}[30000]")
    with pytest.raises(UsageError, match="means 29,999 members that have not begun"):
        selected(f"{job}[0-]")


def test_one_member_that_is_stopped_makes_room_for_the_next(daemon: Daemon, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    job = array(daemon, f"echo $1 >> {ran}; test $1 = 1 || sleep 1000", 2, at_most=1)
    until(lambda: lines(ran) == ["0"], "the first runs")
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    daemon.ended(job)
    assert lines(ran) == ["0", "1"]


def test_a_held_array_begins_nothing_until_it_is_released_and_one_behind_another_waits_for_all_of_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    daemon.start()
    first = array(daemon, f"echo first >> {ran}", 3, hold=True)
    second = array(daemon, f"echo second >> {ran}", 1, after=(first,))
    until(lambda: daemon.job(second).why, "it is known why the second waits")
    assert daemon.job(first).held
    assert "to succeed" in (daemon.job(second).why or "")
    daemon.ask(Hold(ids=(first,), held=False))
    daemon.ended(second)
    assert lines(ran) == ["first"] * 3 + ["second"]


def test_why_it_waits_is_what_its_next_member_waits_for(daemon: Daemon) -> None:
    daemon.start()
    blocker = daemon.submit("sleep", "1000", machine="p3.8xlarge", need=CommandRequest(devices=4))
    daemon.wait(blocker, JobState.RUNNING)
    job = array(daemon, "true", 3)
    until(lambda: daemon.job(job).why, "it is known why it waits")
    assert blocker in (daemon.job(job).why or "")
    assert daemon.job(job).state is JobState.QUEUED


def test_members_are_listed_and_selected_through_their_array_alone(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "true", 12, name="mine")
    daemon.ended(job)

    def selected(*names: str, ended: int = 100) -> tuple[str, ...]:
        answer = daemon.ask(Select(jobs=Selection(names=names, ended=ended)))
        assert isinstance(answer, Selected)
        return answer.ids

    found = daemon.ask(ListJobs(ended=100))
    assert isinstance(found, Jobs)
    assert [one.id for one in found.jobs] == [job]
    assert selected("run*") == selected() == (job,)
    assert selected(f"{job}[]") == tuple(f"{job}[{number}]" for number in range(12))
    assert selected("mine[2-3]") == (f"{job}[2]", f"{job}[3]")
    assert selected("mine[10-]") == (f"{job}[10]", f"{job}[11]")
    assert selected(f"{job}[7]") == (f"{job}[7]",)
    with pytest.raises(NotFound):
        selected("mine[12]")
    daemon.kill()
    assert [one.id for one in jobs_on_disk(daemon.settings, (), 100)] == [job]
    assert [one.state for one in jobs_on_disk(daemon.settings, (f"{job}[3]",), 0)] == [JobState.SUCCEEDED]


def test_an_array_is_removed_with_its_members_and_while_it_lives_none_of_them(daemon: Daemon) -> None:
    daemon.start()
    job = array(daemon, "test $1 = 0 || sleep 1000", 2)
    until(lambda: members(daemon, job).succeeded == 1, "the first has ended")
    kept = remove(f"{job}[0]", settings=daemon.settings)
    assert kept.ids == ()
    assert "has not ended" in kept.kept[f"{job}[0]"]
    daemon.ask(Stop(ids=(job,)))
    daemon.ended(job)
    assert remove(job, settings=daemon.settings).ids == (job,)
    assert list((daemon.state / "jobs").iterdir()) == []
    assert daemon.ask(ListJobs(ended=100)) == Jobs(jobs=())


def test_a_link_in_the_place_of_a_member_is_not_followed_and_the_reason_is_shown(
    daemon: Daemon, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    daemon.start()
    job = array(daemon, "true", 2, at_most=1, hold=True)
    place = daemon.state / "jobs" / f"{job}[0]"
    place.symlink_to(elsewhere)
    daemon.ask(Hold(ids=(job,), held=False))
    until(lambda: "is in its place" in (daemon.job(job).why or ""), "the link is the reason")
    assert list(elsewhere.iterdir()) == []
    place.unlink()
    assert daemon.ended(job)[0].state is JobState.SUCCEEDED


def test_an_array_whose_parameters_do_not_go_together_is_refused(daemon: Daemon) -> None:
    daemon.start()
    wrong = Array(count=3, names=("a",), values=(("1",),))
    with pytest.raises(UsageError):
        daemon.submit("true", array=wrong)
