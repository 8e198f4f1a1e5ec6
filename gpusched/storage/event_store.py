"""The notifications that are not delivered yet, on disk: one row for each event and destination."""

from collections.abc import Collection
from typing import Final

import msgspec

from gpusched.control.messages import Undelivered
from gpusched.notifications.destination import Parcel
from gpusched.storage.database import Database

__all__ = ["TABLES", "EventRow", "EventStore"]

TABLES: Final = (
    """CREATE TABLE events (id TEXT NOT NULL, destination TEXT NOT NULL, created REAL NOT NULL, job TEXT,
    payload BLOB, tries INTEGER NOT NULL DEFAULT 0, due REAL, tried REAL, reason TEXT,
    PRIMARY KEY (id, destination)) WITHOUT ROWID""",
    "CREATE INDEX events_by_due ON events (destination, due) WHERE due IS NOT NULL",
)
"""`payload` is the JSON that is sent each time. `due` (Unix seconds) is when it is tried next, NULL once it is given
up, and then `payload` is NULL, too. `reason` is why it was not delivered at `tried`, the latest of its `tries`.
"""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """A new notification."""

    id: str
    destination: str
    created: float
    job: str | None
    payload: bytes


class EventStore:
    """The table of notifications in the daemon's database. All methods raise HostFault, as the Store's do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: EventRow) -> None:
        """Save a notification, due at once."""
        values = (row.id, row.destination, row.created, row.job, row.payload, row.created)
        statement = (
            "INSERT OR IGNORE INTO events (id, destination, created, job, payload, due) VALUES (?, ?, ?, ?, ?, ?)"
        )
        self._database.run(statement, values)

    def destinations(self, now: float, ahead_s: float) -> list[str]:
        """Return the destinations that something is due for, those of the configuration first.

        What is due later than `ahead_s` from now is due, too: the clock was set back.
        """
        statement = (
            "SELECT destination FROM events WHERE due IS NOT NULL AND (due <= ? OR due > ?) GROUP BY destination "
            "ORDER BY destination LIKE 'job:%', min(created)"
        )
        return [name for (name,) in self._database.run(statement, (now, now + ahead_s))]

    def due(self, destination: str, now: float, ahead_s: float, limit: int) -> list[Parcel]:
        """Return what is due for a destination, the oldest first."""
        statement = (
            "SELECT id, payload FROM events WHERE destination=? AND due IS NOT NULL AND (due <= ? OR due > ?) "
            "ORDER BY created, id LIMIT ?"
        )
        rows = self._database.run(statement, (destination, now, now + ahead_s, limit))
        return [Parcel(id=event_id, payload=payload) for event_id, payload in rows]

    def next_due(self, busy: Collection[str]) -> float | None:
        """Return when the next notification is due whose destination is not `busy`, None if none is."""
        marks = ", ".join("?" * len(busy))
        statement = f"SELECT min(due) FROM events WHERE due IS NOT NULL AND destination NOT IN ({marks})"  # noqa: S608
        due: float | None = self._database.run(statement, tuple(busy))[0][0]
        return due

    def tries(self, event_id: str, destination: str) -> tuple[int, float]:
        """Return how often a notification was tried, and when its event happened; 0 and 0 if there is none."""
        values = (event_id, destination)
        rows = self._database.run("SELECT tries, created FROM events WHERE id=? AND destination=?", values)
        return rows[0] if rows else (0, 0.0)

    def delivered(self, event_id: str, destination: str) -> None:
        """Forget a notification that was delivered."""
        self._database.run("DELETE FROM events WHERE id=? AND destination=?", (event_id, destination))

    def failed(self, event_id: str, destination: str, now: float, due: float | None, reason: str) -> None:
        """Save that a notification was tried, and when it is tried again: never, if `due` is None."""
        statement = (
            "UPDATE events SET tries=tries+1, tried=?, due=?, reason=?, payload=CASE WHEN ? IS NULL THEN NULL "
            "ELSE payload END WHERE id=? AND destination=?"
        )
        self._database.run(statement, (now, due, reason, due, event_id, destination))

    def drop(self, destination: str) -> int:
        """Forget what waits for a destination that is no more; return how many these were."""
        self._database.run("DELETE FROM events WHERE destination=? AND due IS NOT NULL", (destination,))
        return self._database.number("SELECT changes()")

    def prune(self, given_up_before: float, most: int) -> int:
        """Forget what was given up so long ago, and of all but the `most` latest; return how many of these waited."""
        self._database.run("DELETE FROM events WHERE due IS NULL AND tried < ?", (given_up_before,))
        over = self._database.number("SELECT count(*) FROM events") - most
        if over <= 0:
            return 0
        waiting = self._database.number(
            "SELECT sum(due IS NOT NULL) FROM (SELECT due FROM events ORDER BY created LIMIT ?)", (over,)
        )
        self._database.run(
            "DELETE FROM events WHERE (id, destination) IN "
            "(SELECT id, destination FROM events ORDER BY created LIMIT ?)",
            (over,),
        )
        return waiting

    def undelivered(self) -> Undelivered | None:
        """Return what failed at least once and was not delivered since, None if nothing did."""
        counted = "SELECT sum(due IS NOT NULL), sum(due IS NULL), min(created) FROM events WHERE tries > 0"
        waiting, given_up, since = self._database.run(counted)[0]
        if since is None:
            return None
        latest = self._database.run("SELECT reason FROM events WHERE tries > 0 ORDER BY tried DESC LIMIT 1")
        return Undelivered(waiting=waiting, given_up=given_up, since=since, reason=latest[0][0] or "")
