"""Events on their way to the store and out of it: made with a change of a job, and written in its transaction.

So an event is neither lost nor invented by an end of the daemon. It is forgotten once its delivery is saved: what was
delivered just before an end is delivered again, under the same id.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from gpusched.model.event import Event
from gpusched.notifications.destination import Destination, Parcel, names, resolve, title_of
from gpusched.notify_settings import NotifySettings
from gpusched.probe.host import host_name
from gpusched.storage.event_store import EventRow, EventStore
from gpusched.storage.job import Job
from gpusched.storage.job_events import event_of, happened, new_id

__all__ = ["Batch", "EventTable"]

_LOG: Final = logging.getLogger(__name__)
PAUSES_S: Final = (5.0, 30.0, 300.0)
"""How long after its first try, its second, and each later one an event is tried again."""

LONGEST_AGE_S: Final = 86_400.0
"""Events older than this are given up after their next try, if that is the third at least."""

_REMEMBERED_S: Final = 7 * 86_400.0
_MOST: Final = 10_000
_MOST_IN_A_BATCH: Final = 50
_PRUNED_AFTER: Final = 500
_MOST_PROBLEMS: Final = 100
_HOST: Final = host_name().encode(errors="replace").decode()


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is due for one destination, whose name is `name`."""

    name: str
    destination: Destination
    parcels: tuple[Parcel, ...]


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    when: float
    problem: str | None


class EventTable:
    """Notifications: new ones, and what came of others, until both are saved. `clock` in Unix seconds.

    `fresh`: something was saved that may be due, since `due` was last called.
    """

    def __init__(self, store: EventStore, settings: NotifySettings, clock: Callable[[], float] = time.time) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._new: list[EventRow] = []
        self._outcomes: list[_Outcome] = []
        self._added = _PRUNED_AFTER
        self._problems: dict[str, str] = {}
        self.fresh = True

    @property
    def unsaved(self) -> bool:
        """Whether something is in memory only."""
        return bool(self._new or self._outcomes)

    def note_change(self, before: Job | None, after: Job) -> None:
        """Make the events of a job that changed."""
        for kind in happened(before, after):
            own = after.submission.notify if after.submission else None
            if self._settings.wants(kind) and names(self._settings, own):
                self._make(event_of(after, kind, self._clock(), _HOST, new_id()), own)

    def note_drain(self, device: str, uuid: str, reason: str) -> None:
        """Make the event of a device that takes nothing new."""
        kind = "device-drained"
        if self._settings.wants(kind):
            self._make(
                Event(
                    id=new_id(),
                    event=kind,
                    time=round(self._clock(), 3),
                    host=_HOST,
                    message=reason,
                    device=device,
                    uuid=uuid,
                )
            )

    def note_outcome(self, event_id: str, name: str, problem: str | None) -> None:
        """Note what came of a delivery: why it failed, None if it did not."""
        self._outcomes.append(_Outcome(id=event_id, name=name, when=self._clock(), problem=problem))

    def drop(self, job_ids: Collection[str]) -> None:
        """Forget new events of jobs that were turned away."""
        self._new = [row for row in self._new if row.job not in job_ids]

    def write(self) -> None:
        """Write what is unsaved, in the transaction of the caller. Raises HostFault."""
        for row in self._new:
            self._store.add(row)
        for one in self._outcomes:
            if one.problem is None:
                self._store.delivered(one.id, one.name)
            else:
                self._store.failed(one.id, one.name, one.when, self._next_try(one), one.problem)
        if self._added + len(self._new) >= _PRUNED_AFTER:
            self._prune()

    def saved(self) -> None:
        """Note that what `write` wrote is on disk."""
        self.fresh = self.fresh or self.unsaved
        self._added = len(self._new) + (0 if self._added >= _PRUNED_AFTER else self._added)
        for one in self._outcomes:
            self._log(one)
        self._new.clear()
        self._outcomes.clear()

    def due(self, busy: Collection[str], room: int) -> list[Batch]:
        """Return what is due for up to `room` destinations that are not `busy`. Raises HostFault."""
        self.fresh = False
        now, found = self._clock(), list[Batch]()
        for name in self._store.destinations(now, PAUSES_S[-1]) if room else ():
            if name in busy or len(found) == room:
                continue
            destination = resolve(name, self._settings)
            if destination is None:
                count = self._store.drop(name)
                _LOG.warning("%d notifications are dropped: the configuration has no %s any more", count, name)
                continue
            parcels = self._store.due(name, now, PAUSES_S[-1], _MOST_IN_A_BATCH)
            found.append(Batch(name=name, destination=destination, parcels=tuple(parcels)))
        return found

    def next_due_in(self, busy: Collection[str]) -> float | None:
        """Return in how many seconds something is due whose destination is not `busy`. Raises HostFault."""
        due = self._store.next_due(busy)
        return None if due is None else min(max(0.0, due - self._clock()), PAUSES_S[-1])

    def _make(self, event: Event, own: str | None = None) -> None:
        payload = msgspec.json.encode(event)
        self._new += [
            EventRow(id=event.id, destination=name, created=event.time, job=event.job, payload=payload)
            for name in names(self._settings, own)
        ]

    def _next_try(self, one: _Outcome) -> float | None:
        tries, created = self._store.tries(one.id, one.name)
        if tries + 1 >= len(PAUSES_S) and one.when - created > LONGEST_AGE_S:
            return None
        return one.when + PAUSES_S[min(tries, len(PAUSES_S) - 1)]

    def _prune(self) -> None:
        lost = self._store.prune(self._clock() - _REMEMBERED_S, _MOST)
        if lost:
            _LOG.warning("%d notifications are dropped, the oldest: more than %d wait", lost, _MOST)

    def _log(self, one: _Outcome) -> None:
        """Log the first failure of a destination in a row, and its end."""
        if one.problem is not None and one.name not in self._problems:
            if len(self._problems) >= _MOST_PROBLEMS:  # each job may have a destination of its own
                self._problems.clear()
            _LOG.warning("a notification could not be delivered (%s): %s", title_of(one.name), one.problem)
            self._problems[one.name] = one.problem
        elif one.problem is None and self._problems.pop(one.name, None) is not None:
            _LOG.warning("notifications are delivered again (%s)", title_of(one.name))
