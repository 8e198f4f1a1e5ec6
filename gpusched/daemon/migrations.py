"""How the daemon's database came to its present form: one step for each version, kept for ever as it was released.

A new database takes all steps too, so there is one way only to the form of today.
"""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gpusched.daemon.database import Database, damaged
from gpusched.errors import HostFault

__all__ = ["APPLICATION_ID", "VERSION", "migrate"]

APPLICATION_ID: Final = 0x67707573
"""The letters "gpus" in the file's header: they distinguish our database from that of another program."""


def migrate(database: Database) -> None:
    """Bring a database to the form of today; its form of before is kept beside it, as NAME.vN.bak.

    Raises HostFault for one of a newer version, of another program, or that cannot be written; it is then unchanged.
    """
    version = _version(database)
    if version > VERSION:
        raise HostFault(
            f"{database.path} was written by a newer gpusched (its form is {version}, this one knows {VERSION})",
            "start the newer gpusched, or move the file away and lose the list of jobs; running jobs go on",
        )
    database.check()
    if 0 < version < VERSION:
        database.copy(database.path.with_name(f"{database.path.name}.v{version}.bak"))
    for number, step in enumerate(_STEPS[version:], start=version + 1):
        with database.transaction():
            step(database)
            database.run(f"PRAGMA application_id={APPLICATION_ID}")
            database.run(f"PRAGMA user_version={number}")
    database.run("PRAGMA journal_mode=WAL")  # only now: until a new database has its tables, its file stays empty


def _version(database: Database) -> int:
    """Return the version of a database's form, 0 if it is empty. Raises HostFault if it is none of ours."""
    owner, version = database.number("PRAGMA application_id"), database.number("PRAGMA user_version")
    if owner == APPLICATION_ID and version > 0:
        return version
    if owner or version or database.number("SELECT count(*) FROM sqlite_schema"):
        hint = "move it elsewhere, or set GPUSCHED_STATE_DIR to another directory"
        raise HostFault(f"{database.path} is another program's database", hint)
    return 0


def _tables(database: Database) -> None:
    """Version 1: jobs, attempts, events, settings; a record is the msgpack of what the daemon knows.

    `ended` is NULL while a job lives. A job's id is WORKLOAD-NUMBER.
    """
    database.run(
        "CREATE TABLE jobs (id TEXT NOT NULL UNIQUE, workload TEXT NOT NULL, number INTEGER NOT NULL,"
        " state TEXT NOT NULL, created REAL NOT NULL, ended REAL, record BLOB NOT NULL)"
    )
    database.run("CREATE INDEX jobs_by_number ON jobs (workload, number)")
    database.run("CREATE INDEX jobs_by_end ON jobs (ended, created)")
    database.run(
        "CREATE TABLE attempts (job TEXT NOT NULL, number INTEGER NOT NULL, record BLOB NOT NULL,"
        " PRIMARY KEY (job, number)) WITHOUT ROWID"
    )
    database.run(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, time REAL NOT NULL, job TEXT, what TEXT NOT NULL,"
        " detail TEXT NOT NULL)"
    )
    database.run("CREATE INDEX events_by_job ON events (job, seq)")
    database.run("CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")


def _environments(database: Database) -> None:
    """Version 2: an environment is kept once for all jobs that have it, and only while one of them lives.

    It is most of what a job takes on disk, and may hold secrets. Records are compressed from here on.
    """
    database.run("CREATE TABLE environments (digest BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID")
    database.run("ALTER TABLE jobs ADD COLUMN environment BLOB REFERENCES environments")
    database.run("CREATE INDEX jobs_by_environment ON jobs (environment) WHERE environment IS NOT NULL")
    for (row,) in database.run("SELECT rowid FROM jobs"):
        ((record, lives),) = database.run("SELECT record, ended IS NULL FROM jobs WHERE rowid=?", (row,))
        try:
            job: dict[str, Any] = msgspec.msgpack.decode(record, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise damaged(database.path, f"the record of a job: {error}") from None
        submission, digest = job.get("submission"), None
        if submission is not None:
            content = msgspec.msgpack.encode(submission["environ"], order="sorted")
            if lives and submission["environ"]:
                digest = hashlib.blake2b(content, digest_size=16).digest()
                database.run("INSERT OR IGNORE INTO environments VALUES (?, ?)", (digest, zlib.compress(content, 1)))
            submission["environ"] = {}
        packed = zlib.compress(msgspec.msgpack.encode(job), 1)
        database.run("UPDATE jobs SET record=?, environment=? WHERE rowid=?", (packed, digest, row))


_STEPS: Final[tuple[Callable[[Database], None], ...]] = (_tables, _environments)

VERSION: Final = len(_STEPS)
"""The version of the form of today."""
