"""The footprints of jobs that have ended, and what contexts took, in the daemon's database.

They are not the jobs' own: a job that is removed leaves what it has shown. Of each key and each kind of context the
latest are kept, and of all of them the latest MOST_KEPT. What is the latest is the order in which the daemon has them:
a clock that was wrong for a while loses nothing.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gpusched.model.footprint import LATEST_RUNS, Context, Footprint, Measurements
from gpusched.storage.database import Database

__all__ = ["MOST_KEPT", "TABLES", "FootprintStore", "RoleFootprint"]

MOST_KEPT: Final = 10_000
"""How many footprints are kept, and how many contexts: some MiB."""

TABLES: Final = (
    """CREATE TABLE footprints (key TEXT NOT NULL, device TEXT NOT NULL, lacked INTEGER NOT NULL, ended REAL NOT NULL,
    job TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY (key, device, lacked, ended, job)) WITHOUT ROWID""",
    "CREATE INDEX footprints_by_end ON footprints (ended)",
    """CREATE TABLE contexts (device TEXT NOT NULL, driver TEXT NOT NULL, framework TEXT NOT NULL,
    version TEXT NOT NULL, ended REAL NOT NULL, job TEXT NOT NULL, mib INTEGER NOT NULL,
    PRIMARY KEY (device, driver, framework, version, ended, job)) WITHOUT ROWID""",
    "CREATE INDEX contexts_by_end ON contexts (ended)",
)
"""`row` is the msgpack of a Footprint; `lacked`: whether it lacked memory; `key` is execution/footprint_key.py's.

`ended` is later than that of each row of the same key and device before it, so that it is their order.

Of the contexts that the roles of one job have shown, the largest is kept.
"""

_LOG: Final = logging.getLogger(__name__)
_ROW: Final = msgspec.msgpack.Decoder(Footprint)


class RoleFootprint(NamedTuple):
    """What is kept of one role of a job on one model of devices; either part may be unknown."""

    key: str
    device: str
    footprint: Footprint | None
    context: Context | None


class FootprintStore:
    """Rows by key and device. All methods raise HostFault if the file cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, job: str, rows: Iterable[RoleFootprint], now: float) -> None:
        """Add what a job has shown by `now` (Unix seconds), and forget what is too much."""
        for key, device, footprint, context in rows:
            if footprint is not None:
                self._put_footprint(job, key, device, footprint, now)
            if context is not None:
                self._put_context(job, device, context, now)

    def find(self, keys: Sequence[str], devices: Sequence[str], driver: str | None) -> Measurements:
        """Return what is known of these keys on these models of devices, with this driver; None: with any."""
        footprints = {
            key: {device: rows for device in devices if (rows := self._footprints(key, device))}
            for key in dict.fromkeys(keys)
        }
        return Measurements(
            footprints={key: rows for key, rows in footprints.items() if rows},
            contexts={device: known for device in devices if (known := self._contexts(device, driver))},
        )

    def _put_footprint(self, job: str, key: str, device: str, row: Footprint, now: float) -> None:
        kind = (key, device, row.lacked_mib is not None)
        ended = self._place("footprints WHERE key=? AND device=?", (key, device), job, min(now, row.ended))
        row = replace(row, ended=ended)
        self._database.run(
            "INSERT OR REPLACE INTO footprints (key, device, lacked, ended, job, row) VALUES (?, ?, ?, ?, ?, ?)",
            (*kind, row.ended, job, msgspec.msgpack.encode(row)),
        )
        same = "FROM footprints WHERE key=? AND device=? AND lacked=?"
        self._database.run(
            f"DELETE {same} AND ended < (SELECT ended {same} ORDER BY ended DESC LIMIT 1 OFFSET ?)",
            (*kind, *kind, LATEST_RUNS - 1),
        )
        self._forget("footprints")

    def _put_context(self, job: str, device: str, one: Context, now: float) -> None:
        kind = (device, one.driver, one.framework, one.version)
        table = "contexts WHERE device=? AND driver=? AND framework=? AND version=?"
        ended = self._place(table, kind, job, min(now, one.ended))
        self._database.run(
            "INSERT INTO contexts (device, driver, framework, version, ended, job, mib) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET mib = max(mib, excluded.mib)",
            (*kind, ended, job, one.mib),
        )
        same = f"FROM {table}"
        self._database.run(
            f"DELETE {same} AND ended < (SELECT ended {same} ORDER BY ended DESC LIMIT 1 OFFSET ?)",
            (*kind, *kind, LATEST_RUNS - 1),
        )
        self._forget("contexts")

    def _place(self, table: str, kind: Sequence[str], job: str, ended: float) -> float:
        """Return the end under which a row is kept: after all others of its kind; where the job has one, that one's."""
        own = self._database.run(f"SELECT max(ended) FROM {table} AND job=?", (*kind, job))[0][0]  # noqa: S608 (nothing from outside)
        if own is not None:
            return float(own)
        last = self._database.run(f"SELECT max(ended) FROM {table}", kind)[0][0]  # noqa: S608 (nothing from outside)
        return ended if last is None else max(ended, math.nextafter(last, math.inf))

    def _forget(self, table: str) -> None:
        self._database.run(
            f"DELETE FROM {table} WHERE ended < (SELECT ended FROM {table} ORDER BY ended DESC LIMIT 1 OFFSET ?)",  # noqa: S608 (nothing from outside)
            (MOST_KEPT - 1,),
        )

    def _footprints(self, key: str, device: str) -> tuple[Footprint, ...]:
        rows = self._database.run(
            "SELECT row FROM footprints WHERE key=? AND device=? ORDER BY ended DESC", (key, device)
        )
        return tuple(_read(rows))

    def _contexts(self, device: str, driver: str | None) -> tuple[Context, ...]:
        rows = self._database.run(
            "SELECT driver, framework, version, mib, ended FROM contexts WHERE device=? AND (? IS NULL OR driver=?)",
            (device, driver, driver),
        )
        return tuple(
            Context(driver=one, framework=framework, version=version, mib=mib, ended=ended)
            for one, framework, version, mib, ended in rows
        )


def _read(rows: Iterable[tuple[bytes]]) -> Iterable[Footprint]:
    """Yield the rows without those that are damaged: the others are right."""
    for (row,) in rows:
        try:
            yield _ROW.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
            _LOG.warning("a footprint is damaged, and is left out")
