"""Which jobs are meant by ids, names, globs and conditions: in memory and on disk alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.control.messages import Refused, Select, Selected, Stop
from gpusched.daemon.admission import _sound
from gpusched.daemon.selection import selected
from gpusched.errors import HostFault, NotFound, UsageError
from gpusched.model.selection import Selection
from gpusched.model.status import JobState
from gpusched.storage.job import Job
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.storage.records import queued


@pytest.fixture
def table(tmp_path: Path) -> Iterator[JobTable]:
    store = Store.open(tmp_path / "gpusched.db")
    yield JobTable(store)
    store.close()


def a_job(number: int, name: str | None = None, state: JobState = JobState.QUEUED, ended: float | None = None) -> Job:
    found = queued(number)
    assert found.submission is not None
    return replace(found, state=state, ended=ended, submission=replace(found.submission, name=name))


def fill(table: JobTable, *jobs: Job) -> None:
    """Add jobs, and save those that ended; the last of these stays unsaved."""
    for job in jobs:
        table.add(replace(job, state=JobState.QUEUED, ended=None))
    table.save(0.0)
    over = [job for job in jobs if job.ended is not None]
    for job in jobs:
        if job.ended is None:
            table.change(job)
    for job in over[:-1]:
        table.change(job)
    table.save(0.0)
    for job in over[-1:]:
        table.change(job)


def names(table: JobTable, *given: str, **asked: object) -> list[str]:
    return list(selected(table, Selection(names=given, **asked)))  # type: ignore[arg-type]


OVER = JobState.SUCCEEDED


def test_a_name_means_the_job_that_lives_else_the_one_that_ended_last_and_an_id_comes_first(table: JobTable) -> None:
    fill(table, a_job(1, "train", OVER, 10.0), a_job(2, "train", OVER, 20.0), a_job(3, "train"), a_job(4, "run-1"))
    assert names(table, "train") == ["run-3"]
    assert names(table, "run-1") == ["run-1"]
    table.change(a_job(3, "train", OVER, 5.0))
    assert names(table, "train") == ["run-3"]  # not saved yet, so that it is the latest
    table.save(0.0)
    assert names(table, "train") == ["run-2"]
    with pytest.raises(NotFound, match="there is no job val"):
        names(table, "val")


def test_a_glob_means_what_lives_and_as_many_of_those_that_ended_as_asked(table: JobTable) -> None:
    fill(table, *(a_job(n, f"t{n}", OVER, float(n)) for n in (1, 2, 3)), a_job(4, "t4"), a_job(5, "other"))
    assert names(table, "t*") == ["run-4"]
    assert names(table, "t*", ended=2) == ["run-4", "run-3", "run-2"]
    assert names(table, "run-[!45]", ended=9) == ["run-3", "run-2", "run-1"]
    assert names(table, "run-4", "t*", ended=1) == ["run-4", "run-3"]
    with pytest.raises(NotFound, match=r"no job that runs or waits matches x\*"):
        names(table, "x*")


def test_conditions_select_by_state_time_and_text(table: JobTable) -> None:
    fill(table, a_job(1, "a", JobState.FAILED, 10.0), a_job(2, "b", OVER, 20.0), a_job(3, "c", JobState.RUNNING))
    assert names(table, states=(JobState.RUNNING,), ended=9) == ["run-3"]
    assert names(table, states=(JobState.FAILED, JobState.RUNNING), ended=9) == ["run-3", "run-1"]
    assert names(table, since=15.0, ended=9) == ["run-3", "run-2"]
    assert names(table, text="sleep 600", ended=9) == ["run-3", "run-2", "run-1"]
    assert names(table, text="\nsleep 600\n/home", states=(OVER,), ended=9) == ["run-2"]
    assert names(table, text="SLEEP", ended=9) == []
    assert names(table, "?", text="no such", ended=9) == []
    assert names(table, "a", states=(OVER,)) == []


def test_the_last_is_the_one_that_came_last_whether_it_ended_or_not(table: JobTable) -> None:
    assert names(table, last=True, ended=9) == []
    fill(table, a_job(1, "a"), a_job(2, "a", OVER, 20.0), a_job(3, "b", OVER, 10.0))
    assert names(table, last=True, ended=9) == ["run-3"]
    assert names(table, "a*", last=True, ended=9) == ["run-2"]
    assert names(table, last=True) == ["run-1"]


words = st.text("abr-*?[]!^.1", max_size=4)


@given(st.lists(st.tuples(st.none() | words, st.booleans()), max_size=6), words.map(lambda word: f"*{word}"))
def test_a_glob_matches_on_disk_what_it_matches_in_memory(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[str | None, bool]], glob: str
) -> None:
    store = Store.open(tmp_path_factory.mktemp("store") / "gpusched.db")
    table = JobTable(store)
    made = [a_job(n, name, OVER, float(n)) for n, (name, _) in enumerate(jobs)]
    fill(table, *made, a_job(99, "last", OVER, 99.0))
    try:
        in_memory = sorted(names(table, glob, ended=99))
    except NotFound:
        in_memory = []
    table.save(0.0)
    try:
        on_disk = sorted(names(table, glob, ended=99))
    except NotFound:
        on_disk = []
    assert in_memory == on_disk
    store.close()


def test_names_of_living_jobs_are_never_equal_and_are_free_again_when_these_have_ended(daemon: Daemon) -> None:
    daemon.start()
    ids = [daemon.submit("sleep", "600", name="train", hold=True) for _ in range(3)]
    assert [daemon.job(job_id).name for job_id in ids] == ["train", "train.2", "train.3"]
    assert ask(daemon, "train") == (ids[0],)
    assert ask(daemon, "train*") == tuple(ids)
    daemon.ask(Stop(ids=(ids[0],)))
    daemon.wait(ids[0])
    again = daemon.submit("sleep", "600", name="train", hold=True)
    assert daemon.job(again).name == "train"
    daemon.kill()
    daemon.start()
    assert ask(daemon, "train", "train.3") == (again, ids[2])


def test_a_job_follows_those_that_names_and_globs_mean(daemon: Daemon) -> None:
    daemon.start()
    first = [daemon.submit("sleep", "600", name=name, hold=True) for name in ("prepare", "prepare", "other")]
    follower = daemon.submit("true", after=("prepare*",), after_any=("other",))
    assert (daemon.job(follower).after, daemon.job(follower).after_any) == (tuple(first[:2]), (first[2],))


def ask(daemon: Daemon, *given: str) -> tuple[str, ...]:
    answer = daemon.ask(Select(jobs=Selection(names=given)))
    assert isinstance(answer, Selected), isinstance(answer, Refused) and answer.message
    return answer.ids


def test_a_job_that_was_turned_away_does_not_come_back_by_a_change_to_it(
    table: JobTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = a_job(1, "train")
    table.add(new)
    table.change(replace(new, held=True))
    with monkeypatch.context() as full:
        full.setattr(table.store, "add", lambda _: a_fault())
        assert [job.id for job in table.save(0.0)] == ["run-1"]
    table.add(a_job(2))
    assert table.save(10.0) == []
    assert [job.id for job in table.store.live()] == ["run-2"]
    assert (list(table.live), table.names) == (["run-2"], {})


def a_fault() -> None:
    raise HostFault("the disk is full", "make room")


def test_what_could_be_written_and_not_read_again_is_refused() -> None:
    asked = queued(1).submission
    assert asked is not None
    assert _sound(asked) is asked
    for odd in (replace(asked, after=("run-1",) * 1001), replace(asked, name="x" * 201)):
        with pytest.raises(UsageError, match="the job cannot be kept so"):
            _sound(odd)
