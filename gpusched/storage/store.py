"""The jobs of all time, on disk: what was saved is there after any end of the daemon or the host.

A job's environment, most of what it takes, is kept once for all jobs that share it, and is forgotten with the last of
them that lives: of 10,000 jobs that ended nothing is left of it, and no secret stays behind.
"""

import contextlib
import hashlib
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from gpusched.model.queue_group import QueueGroup
from gpusched.model.selection import Selection
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.database import Database, damaged
from gpusched.storage.event_store import EventStore
from gpusched.storage.footprint_store import FootprintStore
from gpusched.storage.job import Job
from gpusched.storage.job_status import status_of
from gpusched.storage.role_footprints import footprints_of
from gpusched.storage.role_usage import roles_used
from gpusched.storage.search import searched
from gpusched.storage.tables import prepare
from gpusched.storage.usage_store import UsageStore

__all__ = ["FIRST_END", "EndPosition", "Store"]

EndPosition = tuple[float, float, int]
"""Where a job stands among those that ended: its end, when it was created, its row."""

FIRST_END: Final[EndPosition] = (0.0, 0.0, 0)
"""Before all of them."""

T = TypeVar("T")

_JOB: Final = msgspec.msgpack.Decoder(Job)
_ENVIRONMENT: Final = msgspec.msgpack.Decoder(dict[str, str])
_FASTEST: Final = 1
_LONGEST_NUMBER: Final = 18  # digits, so that it fits into 64 bits
_COLUMNS: Final = "id, workload, number, state, created, ended, environment, record, name, text, array, queue_group"
_MARKS: Final = ", ".join("?" * 12)
_UPDATES: Final = ", ".join(
    f"{one}=excluded.{one}" for one in ("state", "ended", "environment", "record", "name", "text", "queue_group")
)
_FORGET: Final = (
    "DELETE FROM environments WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE environment = environments.digest)"
)


class Store:
    """The daemon's database. All its methods raise HostFault if the file cannot be read or written, or is damaged.

    What is saved outside a transaction is one by itself. `events`: notifications that are not delivered yet. `usage`:
    what the jobs that have ended used. `footprints`: what later ones are planned with of that.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.events = EventStore(database)
        self.usage = UsageStore(database)
        self.footprints = FootprintStore(database)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database, made if it is missing; a file that is not understood is refused and left as it is."""
        database = Database(path)
        try:
            prepare(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self._database.close()

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Everything inside is on disk when this ends, or nothing of it; one inside another is part of that one."""
        return self._database.transaction()

    def add(self, job: Job) -> None:
        """Save a new job. Raises HostFault too if there is one of its id."""
        self._put(job, "")

    def save(self, job: Job) -> None:
        """Save a job, new or known.

        With one that has ended its environment is forgotten: a job that is to be queued again is saved as queued at
        once, never as ended in between.
        """
        self._put(job, f"ON CONFLICT (id) DO UPDATE SET {_UPDATES}")

    def job(self, job_id: str) -> Job | None:
        """Return a job, or None if there is none of that id."""
        return next(iter(self._jobs("WHERE id=?", job_id)), None)

    def live(self) -> list[Job]:
        """Return all jobs that have not ended, oldest first. Jobs of the same environment share it."""
        return self._jobs("WHERE ended IS NULL ORDER BY created, rowid")

    def ended(self, limit: int, skip: int = 0, *, members: bool = False) -> list[Job]:
        """Return the jobs that ended after the `skip` latest, latest first; they have no `environ` any more.

        `members`: those of arrays, too.
        """
        alone = "" if members else "AND array IS NULL"
        latest = (
            f"SELECT rowid FROM jobs WHERE ended IS NOT NULL {alone} ORDER BY ended DESC, rowid DESC LIMIT ? OFFSET ?"  # noqa: S608 (nothing from outside)
        )
        return self._jobs(f"WHERE rowid IN ({latest}) ORDER BY ended DESC, rowid DESC", limit, skip)

    def arrays_since(self, moment: float) -> list[Job]:
        """Return the arrays that ended since a moment."""
        began = "EXISTS (SELECT 1 FROM jobs AS member WHERE member.array = jobs.id)"  # one that did not was cancelled
        found = self._jobs(f"WHERE ended >= ? AND array IS NULL AND (state = 'cancelled' OR {began})", moment)
        return [job for job in found if job.is_array]

    def ended_until(
        self, until: EndPosition, after: EndPosition, limit: int, *, members: bool = False
    ) -> list[tuple[str, EndPosition]]:
        """Return the first `limit` jobs that ended behind `after`, and not behind `until`; those that did first.

        `members`: those of arrays, too.
        """
        alone = "" if members else "AND array IS NULL"
        rows = self._database.run(
            "SELECT id, ended, created, rowid FROM jobs WHERE ended IS NOT NULL AND (ended, created, rowid) > (?, ?, ?)"  # noqa: S608 (nothing from outside)
            f" AND (ended, created, rowid) <= (?, ?, ?) {alone} ORDER BY ended, created, rowid LIMIT ?",
            (*after, *until, limit),
        )
        return [(job_id, (end, created, row)) for job_id, end, created, row in rows]

    def end_before(self, latest: int) -> EndPosition | None:
        """Return the end of the job that ended last before the `latest`; None if there are no more jobs than these.

        An array is one job.
        """
        rows = self._database.run(
            "SELECT ended, created, rowid FROM jobs WHERE ended IS NOT NULL AND array IS NULL"
            " ORDER BY ended DESC, created DESC, rowid DESC LIMIT 1 OFFSET ?",
            (latest,),
        )
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def last_named(self, name: str) -> str | None:
        """Return the id of the job of that name that ended last, None if none did."""
        rows = self._database.run(
            "SELECT id FROM jobs WHERE name=? AND ended IS NOT NULL ORDER BY ended DESC, rowid DESC LIMIT 1", (name,)
        )
        return rows[0][0] if rows else None

    def search(self, glob: str | None, asked: Selection, limit: int) -> list[str]:
        """Return the ids of the `limit` jobs that ended last, of those that match and meet what is asked.

        Where the last job is asked for, it is the one that came last.
        """
        conditions, values = ["ended IS NOT NULL", "array IS NULL"], list[object]()
        if glob is not None:
            conditions.append("(matches(id, ?) OR matches(name, ?))")
            values += [glob, glob]
        if asked.states:
            conditions.append(f"state IN ({', '.join('?' * len(asked.states))})")
            values += asked.states
        if asked.since is not None:
            conditions.append("ended >= ?")
            values.append(asked.since)
        if asked.before is not None:
            conditions.append("ended < ?")
            values.append(asked.before)
        if asked.text is not None:
            conditions.append("instr(text, ?) > 0")
            values.append(asked.text)
        if asked.group is not None:
            conditions.append("queue_group = ?")
            values.append(asked.group)
        where = " AND ".join(conditions)
        order, most = ("created", 1) if asked.last else ("ended", limit)
        query = f"SELECT id FROM jobs WHERE {where} ORDER BY {order} DESC, rowid DESC LIMIT ?"  # noqa: S608 (nothing from outside)
        return [job_id for (job_id,) in self._database.run(query, (*values, most))]

    def members(self, array: str, most: int = -1) -> list[tuple[str, JobState]]:
        """Return the ids and states of members of an array that have begun, in no order; `most`: that many at most."""
        rows = self._database.run("SELECT id, state FROM jobs WHERE array=? LIMIT ?", (array, most))
        return [(job_id, JobState(state)) for job_id, state in rows]

    def forget_members(self, array: str, states: Sequence[JobState]) -> None:
        """Forget the members of an array that are in these states."""
        marks = ", ".join("?" * len(states))
        which = f"FROM jobs WHERE array=? AND state IN ({marks})"
        with self.transaction():
            self._database.run(f"DELETE FROM usage WHERE job IN (SELECT id {which})", (array, *states))  # noqa: S608 (nothing from outside)
            self._database.run(f"DELETE {which}", (array, *states))

    def known_ids(self) -> list[str]:
        """Return the ids of all jobs, in no order."""
        return [job_id for (job_id,) in self._database.run("SELECT id FROM jobs")]

    def last_number(self, workload: str) -> int:
        """Return the highest N of all ids WORKLOAD-N, 0 if there is none."""
        return self._database.number("SELECT max(number) FROM jobs WHERE workload=?", (workload,))

    def remove(self, ids: Sequence[str]) -> None:
        """Forget jobs."""
        with self.transaction():
            for job_id in ids:
                self._database.run("DELETE FROM jobs WHERE id=?", (job_id,))
                self.usage.remove(job_id)

    def groups(self) -> dict[str, QueueGroup]:
        """Return the groups of which something is set, by name."""
        rows = self._database.run("SELECT name, at_most, paused FROM groups ORDER BY name")
        try:
            found = [QueueGroup(name=name, at_most=at_most, paused=bool(paused)) for name, at_most, paused in rows]
            return {group.name: msgspec.convert(msgspec.to_builtins(group), QueueGroup) for group in found}
        except msgspec.ValidationError as error:
            raise damaged(self._database.path, f"the record of a group: {error}") from None

    def save_group(self, group: QueueGroup) -> None:
        """Save what is set of a group; one of which nothing is set is forgotten."""
        with self.transaction():
            self._database.run("DELETE FROM groups WHERE name=?", (group.name,))
            if not group.is_plain:
                values = (group.name, group.at_most, group.paused)
                self._database.run("INSERT INTO groups (name, at_most, paused) VALUES (?, ?, ?)", values)

    def _put(self, job: Job, conflict: str) -> None:
        over = job.state in JOB_TERMINAL
        ended = (time.time() if job.ended is None else job.ended) if over else None
        slim = job
        if job.submission is not None:
            slim = msgspec.structs.replace(job, submission=msgspec.structs.replace(job.submission, environ={}))
        with self.transaction():
            digest = None if over else self._keep_environment(job)
            name, group = (job.submission.name, job.submission.group) if job.submission else (None, None)
            values = (
                job.id,
                *_split(job.id),
                job.state,
                job.created,
                ended,
                digest,
                _packed(slim),
                name,
                searched(job),
                job.array,
                group,
            )
            self._database.run(f"INSERT INTO jobs ({_COLUMNS}) VALUES ({_MARKS}) {conflict}", values)  # noqa: S608 (nothing from outside)
            if over:
                self._database.run(_FORGET)
                end = status_of(job)
                if rows := roles_used(end):
                    self.usage.put(job.id, rows)
                    self.footprints.put(job.id, footprints_of(job, end), time.time())

    def _keep_environment(self, job: Job) -> bytes | None:
        if job.submission is None or not job.submission.environ:
            return None
        content = msgspec.msgpack.encode(job.submission.environ, order="sorted")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if not self._database.run("SELECT 1 FROM environments WHERE digest=?", (digest,)):
            values = (digest, zlib.compress(content, _FASTEST))
            self._database.run("INSERT INTO environments (digest, content) VALUES (?, ?)", values)
        return digest

    def _jobs(self, which: str, *values: object) -> list[Job]:
        rows = self._database.run(f"SELECT id, record, environment FROM jobs {which}", values)  # noqa: S608 (nothing from outside)
        kept = {digest: self._environment(digest) for digest in {row[2] for row in rows} if digest is not None}
        return [_whole(self._unpacked(record, _JOB, job_id), kept.get(digest)) for job_id, record, digest in rows]

    def _environment(self, digest: bytes) -> dict[str, str]:
        rows = self._database.run("SELECT content FROM environments WHERE digest=?", (digest,))
        if not rows:
            raise damaged(self._database.path, "an environment is missing")
        return self._unpacked(rows[0][0], _ENVIRONMENT, "an environment")

    def _unpacked(self, packed: bytes, decoder: "msgspec.msgpack.Decoder[T]", what: str) -> T:
        try:
            return decoder.decode(zlib.decompress(packed))
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            raise damaged(self._database.path, f"the record of {what}: {error}") from None


def _packed(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value), _FASTEST)


def _whole(job: Job, environ: dict[str, str] | None) -> Job:
    if job.submission is None or environ is None:
        return job
    return msgspec.structs.replace(job, submission=msgspec.structs.replace(job.submission, environ=environ))


def _split(job_id: str) -> tuple[str, int]:
    """Return the workload and the number of an id WORKLOAD-N; the number is 0 for another form."""
    workload, _, number = job_id.rpartition("-")
    fits = number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER
    return (workload, int(number)) if fits else (job_id, 0)
