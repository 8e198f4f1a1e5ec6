"""When an event is tried again, when it is given up, and what is kept of it; on a clock of the test's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.errors import HostFault
from gpusched.model.status import JobState
from gpusched.notify_settings import NotifySettings
from gpusched.storage import event_table
from gpusched.storage.event_store import EventStore
from gpusched.storage.event_table import LONGEST_AGE_S, PAUSES_S, EventTable
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store
from tests.scheduling.queueing import job, whole


class Table(EventTable):
    """A table with one destination, at a time that the test sets."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.events, NotifySettings(command="true"), lambda: self.now)
        self.undelivered, self.now = store.events.undelivered, 1000.0

    def save(self) -> None:
        self.write()
        self.saved()

    def drained(self, uuid: str) -> None:
        self.note_drain("GPU 0", uuid, "broken")
        self.save()

    def ids(self) -> list[str]:
        return [parcel.id for batch in self.due((), 1) for parcel in batch.parcels]

    def fail(self) -> None:
        (event_id,) = self.ids()
        self.note_outcome(event_id, "command", "no network")
        self.save()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    store = Store.open(tmp_path / "gpusched.db")
    yield Table(store)
    store.close()


def test_an_event_is_due_at_once_and_after_growing_pauses_under_one_id(table: Table) -> None:
    table.drained("GPU-a")
    first = table.ids()
    for pause_s in (*PAUSES_S, PAUSES_S[-1]):
        table.fail()
        assert table.ids() == []
        assert table.next_due_in(()) == pytest.approx(pause_s)
        table.now += pause_s
        assert table.ids() == first


def test_an_event_is_given_up_after_a_day_and_three_tries_and_stays_known_for_a_week(table: Table) -> None:
    table.drained("GPU-a")
    table.now += 2 * LONGEST_AGE_S
    for _ in range(2):
        table.fail()
        table.now += PAUSES_S[1]
    shown = table.undelivered()
    assert shown is not None
    assert (shown.waiting, shown.given_up) == (1, 0)

    table.fail()

    assert table.ids() == []
    assert table.next_due_in(()) is None
    shown = table.undelivered()
    assert shown is not None
    assert (shown.waiting, shown.given_up, shown.since, shown.reason) == (0, 1, 1000.0, "no network")
    table.now += 8 * 86_400
    for number in range(600):
        table.drained(f"GPU-{number}")
    assert table.undelivered() is None


def test_of_too_many_events_the_oldest_are_dropped_and_the_log_has_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_table, "_MOST", 10)
    for number in range(30):
        table.now += 1
        table.note_drain("GPU 0", f"GPU-{number}", "broken")
    table.save()
    monkeypatch.setattr(event_table, "_PRUNED_AFTER", 1)
    table.drained("GPU-last")

    assert len(table.ids()) == 10
    assert "20 notifications are dropped" in caplog.text


def test_a_clock_that_is_set_back_delays_no_event(table: Table) -> None:
    table.now = 100_000.0
    table.drained("GPU-a")
    table.now = 1000.0

    assert len(table.ids()) == 1
    assert table.next_due_in(()) == pytest.approx(PAUSES_S[-1])  # at the latest


def test_a_change_of_a_job_and_its_event_are_saved_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "gpusched.db")
    table = JobTable(store, NotifySettings(command="true"))
    queued = job("run-1", whole(0))
    table.add(queued)
    table.save(0.0)
    with monkeypatch.context() as broken:
        broken.setattr(EventStore, "add", no_room)
        table.change(replace(queued, state=JobState.CANCELLED, ended=1.0))
        table.save(0.0)
        assert table.problem is not None
        assert [one.state for one in store.live()] == [JobState.QUEUED]

    table.save(100.0)

    assert store.live() == []
    assert [len(batch.parcels) for batch in table.events.due((), 8)] == [1]
    store.close()


def no_room(*_: object) -> None:
    raise HostFault("the disk is full")
