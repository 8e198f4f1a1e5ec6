"""The daemon's groups: a limit that is set while they run, a pause, and both after a kill -9."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpusched.control.messages import ChangeGroup, Edit, Explain, Explained, Groups, Hold, ListGroups, Select, Selected
from gpusched.control.messages import Stop as StopJobs
from gpusched.daemon.groups import change_group
from gpusched.errors import HostFault, NotFound
from gpusched.model.job import QueueChange
from gpusched.model.queue_group import GroupChange, GroupStatus, QueueGroup
from gpusched.model.selection import Selection
from gpusched.model.status import JobState
from gpusched.storage.database import Database
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.daemon.daemons import Daemon
from tests.patience import until
from tests.storage.records import queued

LIVE = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def change(daemon: Daemon, **changes: object) -> GroupStatus:
    answer = daemon.ask(ChangeGroup(name="sweep", change=GroupChange(**changes)))  # type: ignore[arg-type]
    assert isinstance(answer, Groups)
    return answer.groups[0]


def groups(daemon: Daemon, name: str | None = None) -> tuple[GroupStatus, ...]:
    answer = daemon.ask(ListGroups(name=name))
    assert isinstance(answer, Groups)
    return answer.groups


def sweep(daemon: Daemon, number: int, **fields: Any) -> list[str]:
    return [daemon.submit("sleep", "600", group="sweep", **fields) for _ in range(number)]


def running(daemon: Daemon, ids: list[str]) -> list[str]:
    return [job.id for job in daemon.jobs(*ids) if job.state in LIVE]


def until_decided(daemon: Daemon, ids: list[str], number: int, why: str) -> list[str]:
    """Wait until so many of the jobs run, and all others wait for that reason; return those that run."""

    def decided() -> bool:
        found = daemon.jobs(*ids)
        live = [job.state is JobState.RUNNING for job in found].count(True)
        return live == number and all(why in (job.why or "") for job in found if job.state is JobState.QUEUED)

    until(decided, f"{number} of {ids} run, the others wait as {why!r}")
    return running(daemon, ids)


def stop(daemon: Daemon, *ids: str) -> None:
    daemon.ask(StopJobs(ids=ids, kill=True))
    daemon.ended(*ids)


def test_a_limit_holds_when_many_may_start_at_once_and_can_be_raised_and_lowered_while_they_run(daemon: Daemon) -> None:
    daemon.start()
    assert change(daemon, at_most=1) == GroupStatus(name="sweep", at_most=1), "before it has a job"
    ids = sweep(daemon, 4, hold=True)
    daemon.ask(Hold(ids=tuple(ids), held=False))
    assert until_decided(daemon, ids, 1, "1 job runs and at most 1 may") == ids[:1]

    change(daemon, at_most=3)
    assert until_decided(daemon, ids, 3, "3 jobs run and at most 3 may") == ids[:3]

    assert change(daemon, at_most=2).running == 3, "those that run go on"
    assert until_decided(daemon, ids, 3, "3 jobs run and at most 2 may") == ids[:3]
    stop(daemon, ids[0])
    assert until_decided(daemon, ids, 2, "2 jobs run and at most 2 may") == ids[1:3]
    stop(daemon, ids[1])
    assert until_decided(daemon, ids, 2, "") == ids[2:]

    assert change(daemon, at_most=None) == GroupStatus(name="sweep", running=2)


def test_a_job_of_no_group_or_another_one_does_not_wait_for_a_limit(daemon: Daemon) -> None:
    daemon.start()
    change(daemon, at_most=1)
    ids = sweep(daemon, 2)
    until_decided(daemon, ids, 1, "at most 1 may")
    for other in (daemon.submit("sleep", "600"), daemon.submit("sleep", "600", group="other")):
        daemon.wait(other, JobState.RUNNING)
    assert [(one.name, one.running, one.waiting) for one in groups(daemon)] == [("other", 1, 0), ("sweep", 1, 1)]


def test_limit_and_pause_outlive_a_kill_9_and_what_ran_still_counts(daemon: Daemon) -> None:
    daemon.start()
    change(daemon, at_most=2)
    ids = sweep(daemon, 4)
    first = until_decided(daemon, ids, 2, "at most 2 may")
    change(daemon, paused=True)
    daemon.kill()
    daemon.start()
    assert groups(daemon) == (GroupStatus(name="sweep", at_most=2, paused=True, running=2, waiting=2),)
    paused = "group sweep is paused; let it go on with: gpusched group sweep --resume"
    assert until_decided(daemon, ids, 2, paused) == first, "those that run go on"

    change(daemon, paused=False)
    assert until_decided(daemon, ids, 2, "2 jobs run and at most 2 may") == first
    change(daemon, paused=True)
    stop(daemon, *first)
    assert until_decided(daemon, ids, 0, paused) == []
    change(daemon, paused=False)
    assert until_decided(daemon, ids, 2, "") == [one for one in ids if one not in first]


def test_a_job_moves_to_another_group_while_it_waits(daemon: Daemon) -> None:
    daemon.start()
    change(daemon, paused=True)
    ids = sweep(daemon, 2)
    until_decided(daemon, ids, 0, "is paused")
    daemon.ask(Edit(ids=tuple(ids[:1]), change=QueueChange(group="other")))
    daemon.wait(ids[0], JobState.RUNNING)
    daemon.ask(Edit(ids=tuple(ids[1:]), change=QueueChange(group=None)))
    daemon.wait(ids[1], JobState.RUNNING)
    assert [job.group for job in daemon.jobs(*ids)] == ["other", None]


def test_jobs_are_selected_by_their_group_in_memory_and_on_disk(daemon: Daemon) -> None:
    daemon.start()
    over = daemon.submit("true", group="sweep")
    daemon.ended(over)
    ids = [*sweep(daemon, 2, hold=True), daemon.submit("sleep", "600", hold=True)]

    def selected(*names: str, **asked: object) -> tuple[str, ...]:
        answer = daemon.ask(Select(jobs=Selection(names=names, **asked)))  # type: ignore[arg-type]
        assert isinstance(answer, Selected)
        return answer.ids

    assert selected(group="sweep") == tuple(ids[:2])
    assert selected(group="sweep", ended=9) == (*ids[:2], over)
    assert selected("run-*", group="sweep", states=(JobState.SUCCEEDED,), ended=9) == (over,)
    assert selected(ids[2], group="sweep") == ()
    with pytest.raises(NotFound, match="there is no group sweeep"):
        selected(group="sweeep", ended=9)


def test_why_a_job_waits_for_its_group_and_that_it_starts_when_another_one_ends(daemon: Daemon) -> None:
    daemon.start()
    change(daemon, at_most=1)
    ids = sweep(daemon, 2, time_limit_s=600.0)
    until_decided(daemon, ids, 1, "at most 1 may")
    answer = daemon.ask(Explain(id=ids[1]))
    assert isinstance(answer, Explained)
    assert (answer.why.place, answer.why.ahead, answer.why.ways) == (1, (), ())
    assert answer.why.start(1.0) is not None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpusched.db"


def test_a_group_is_kept_while_something_is_set_of_it(path: Path) -> None:
    store = Store.open(path)
    for group in (QueueGroup(name="b", at_most=2), QueueGroup(name="a", paused=True), QueueGroup(name="b", at_most=3)):
        store.save_group(group)
    store.close()
    store = Store.open(path)
    assert list(store.groups().values()) == [QueueGroup(name="a", paused=True), QueueGroup(name="b", at_most=3)]
    store.save_group(QueueGroup(name="a"))
    assert list(store.groups()) == ["b"]
    store.close()


def test_a_change_that_cannot_be_saved_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: QueueGroup) -> None:
        raise HostFault("the disk is full", "make room")

    store = Store.open(path)
    table = JobTable(store)
    change_group(table, "sweep", GroupChange(at_most=2))
    monkeypatch.setattr(store, "save_group", full)
    with pytest.raises(HostFault, match="the disk is full"):
        change_group(table, "sweep", GroupChange(at_most=3))
    assert table.groups == store.groups() == {"sweep": QueueGroup(name="sweep", at_most=2)}
    store.close()


def test_when_a_job_was_expected_to_start_counts_no_more_once_its_group_has_changed(path: Path) -> None:
    store = Store.open(path)
    table = JobTable(store)
    for number, group in ((1, "sweep"), (2, "other")):
        one = queued(number)
        assert one.submission is not None
        table.add(replace(one, promised=50.0, submission=replace(one.submission, group=group)))
    change_group(table, "sweep", GroupChange(paused=True))
    assert [job.promised for job in table.live.values()] == [None, 50.0]
    store.close()


def test_a_group_that_could_not_have_been_saved_is_damage(path: Path) -> None:
    Store.open(path).close()
    database = Database(path)
    database.run("INSERT INTO groups (name, at_most, paused) VALUES ('sweep', 'many', 0)")
    database.close()
    store = Store.open(path)
    with pytest.raises(HostFault, match=r"is damaged.*the record of a group"):
        store.groups()
    store.close()
