"""The tables of the daemon's database, and which files are such databases."""

from typing import Final

from gpusched.daemon.database import Database
from gpusched.errors import HostFault

__all__ = ["APPLICATION_ID", "VERSION", "prepare"]

APPLICATION_ID: Final = 0x67707573
"""The letters "gpus" in the file's header: they distinguish our database from that of another program."""

VERSION: Final = 3
"""The version of the tables."""

_TABLES: Final = (
    """CREATE TABLE jobs (id TEXT NOT NULL UNIQUE, workload TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    created REAL NOT NULL, ended REAL, record BLOB NOT NULL, environment BLOB REFERENCES environments)""",
    "CREATE INDEX jobs_by_number ON jobs (workload, number)",
    "CREATE INDEX jobs_by_end ON jobs (ended, created)",
    "CREATE TABLE environments (digest BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE INDEX jobs_by_environment ON jobs (environment) WHERE environment IS NOT NULL",
)
"""A job's id is WORKLOAD-NUMBER; `ended` is NULL while it lives; `record` is the compressed msgpack of a Job.

An environment is kept once for all jobs that have it, and only while one of them lives: it is most of what a job takes
on disk, and may hold secrets.
"""


def prepare(database: Database) -> None:
    """Make the tables in an empty database.

    Raises HostFault for one of another version or another program, or a damaged one; it is then unchanged.
    """
    version = _version(database)
    if version not in {0, VERSION}:
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
