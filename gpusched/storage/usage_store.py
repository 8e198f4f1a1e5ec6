"""The usage of jobs that have ended, in the daemon's database: a row for each role."""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpusched.model.usage import RoleUsage
from gpusched.storage.database import Database

__all__ = ["TABLES", "UsageStore"]

TABLES: Final = (
    """CREATE TABLE usage (job TEXT NOT NULL, role TEXT NOT NULL, ended REAL NOT NULL, row BLOB NOT NULL,
    PRIMARY KEY (job, role)) WITHOUT ROWID""",
    "CREATE INDEX usage_by_end ON usage (ended)",
)
"""`row` is the msgpack of a RoleUsage."""

_LOG: Final = logging.getLogger(__name__)
_ROW: Final = msgspec.msgpack.Decoder(RoleUsage)
_ROWS: Final = msgspec.msgpack.Decoder(list[RoleUsage])
_ARRAY_OF_MANY: Final = b"\xdd"
"""It stands before the number of entries, in 32 bits (msgpack's `array 32`)."""

_WRONG: Final = (msgspec.MsgspecError, UnicodeDecodeError, TypeError)


class UsageStore:
    """Rows by job. All methods raise HostFault if the file cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, job: str, rows: Sequence[RoleUsage]) -> None:
        """Replace the rows of a job."""
        self.remove(job)
        for row in rows:
            values = (job, row.role, row.ended or 0.0, msgspec.msgpack.encode(row))
            self._database.run("INSERT INTO usage (job, role, ended, row) VALUES (?, ?, ?, ?)", values)

    def remove(self, job: str) -> None:
        """Forget a job."""
        self._database.run("DELETE FROM usage WHERE job=?", (job,))

    def since(self, moment: float, most: int) -> list[RoleUsage]:
        """Return the rows of the jobs that ended at or after a moment, in Unix seconds; `most` of the latest."""
        rows = self._database.run(
            "SELECT row FROM usage WHERE ended >= ? ORDER BY ended DESC, job, role LIMIT ?", (moment, most)
        )
        return _read(rows)

    def of(self, jobs: Sequence[str]) -> list[RoleUsage]:
        """Return the rows of these jobs."""
        found = []
        for job in jobs:
            found += self._database.run("SELECT row FROM usage WHERE job=? ORDER BY role", (job,))
        return _read(found)

    def of_array(self, array: str, most: int) -> list[RoleUsage]:
        """Return the rows of the members of an array that have ended, `most` of the latest."""
        rows = self._database.run(
            "SELECT row FROM usage WHERE job IN (SELECT id FROM jobs WHERE array=?) ORDER BY ended DESC LIMIT ?",
            (array, most),
        )
        return _read(rows)


def _read(rows: Iterable[tuple[bytes]]) -> list[RoleUsage]:
    """Return the rows without those that are damaged: they are statistics, and the others are right."""
    packed = [row for (row,) in rows]
    try:  # all at once, in a third of the time
        return _ROWS.decode(b"".join((_ARRAY_OF_MANY, len(packed).to_bytes(4), *packed)))
    except _WRONG:
        pass
    found = []
    for row in packed:
        try:
            found.append(_ROW.decode(row))
        except _WRONG:
            _LOG.warning("a row of the usage of jobs is damaged, and is left out")
    return found
