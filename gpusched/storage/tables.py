"""The tables of the daemon's database, and how a database gets them."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpusched.errors import HostFault
from gpusched.storage.database import Database
from gpusched.storage.event_store import TABLES as EVENT_TABLES
from gpusched.storage.footprint_store import TABLES as FOOTPRINT_TABLES
from gpusched.storage.usage_store import TABLES as USAGE_TABLES

__all__ = ["APPLICATION_ID", "VERSION", "prepare"]

APPLICATION_ID: Final = 0x67707573
"""The letters "gpus" in the file's header: they distinguish our database from that of another program."""

VERSION: Final = 7
"""The version of the tables."""

_TABLES: Final = (
    """CREATE TABLE jobs (id TEXT NOT NULL UNIQUE, workload TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    created REAL NOT NULL, ended REAL, record BLOB NOT NULL, environment BLOB REFERENCES environments, name TEXT,
    text TEXT NOT NULL, array TEXT, queue_group TEXT)""",
    "CREATE INDEX jobs_by_number ON jobs (workload, number)",
    "CREATE INDEX jobs_by_end ON jobs (ended, created)",
    "CREATE INDEX alone_by_end ON jobs (ended, created) WHERE array IS NULL",
    "CREATE INDEX members ON jobs (array, state) WHERE array IS NOT NULL",
    "CREATE INDEX jobs_by_name ON jobs (name, ended) WHERE name IS NOT NULL",
    "CREATE TABLE environments (digest BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE INDEX jobs_by_environment ON jobs (environment) WHERE environment IS NOT NULL",
    "CREATE TABLE groups (name TEXT PRIMARY KEY, at_most INTEGER, paused INTEGER NOT NULL) WITHOUT ROWID",
    *EVENT_TABLES,
    *USAGE_TABLES,
    *FOOTPRINT_TABLES,
)
"""A job's id is WORKLOAD-NUMBER; `ended` is NULL while it lives; `record` is the compressed msgpack of a Job. `name` is
what its user named it, `text` what is searched (see `searched`), `array` the id of the array of a member, `queue_group`
the group that it is in. Of groups those are kept of which something is set.

An environment is kept once for all jobs that have it, and only while one of them lives: it is most of what a job takes
on disk, and may hold secrets.
"""

_CHANGES: Final[Mapping[int, Sequence[str]]] = {5: (*USAGE_TABLES, *FOOTPRINT_TABLES), 6: FOOTPRINT_TABLES}
"""What makes the tables of an earlier version those of this one."""


def prepare(database: Database) -> None:
    """Make the tables in an empty database, and those that are new in one of an earlier version.

    Raises HostFault for one of another version or another program, or a damaged one; it is then unchanged.
    """
    version = _version(database)
    if version not in {0, *_CHANGES, VERSION}:
        raise HostFault(
            f"{database.path} was written by another gpusched (its form is {version}, this one knows {VERSION})",
            "start that gpusched, or move the file away and lose the list of jobs; running jobs go on",
        )
    database.check()
    if version == 0:
        with database.transaction():
            for table in _TABLES:
                database.run(table)
            database.run(f"PRAGMA application_id={APPLICATION_ID}")
            database.run(f"PRAGMA user_version={VERSION}")
    elif version in _CHANGES:
        with database.transaction():
            for change in _CHANGES[version]:
                database.run(change)
            database.run(f"PRAGMA user_version={VERSION}")
    database.run("PRAGMA journal_mode=WAL")  # only now: until a new database has its tables, its file stays empty


def _version(database: Database) -> int:
    """Return the version of a database's tables, 0 if it is empty. Raises HostFault if it is none of ours."""
    owner, version = database.number("PRAGMA application_id"), database.number("PRAGMA user_version")
    if owner == APPLICATION_ID and version > 0:
        return version
    if owner or version or database.number("SELECT count(*) FROM sqlite_schema"):
        hint = "move it elsewhere, or set GPUSCHED_STATE_DIR to another directory"
        raise HostFault(f"{database.path} is another program's database", hint)
    return 0
