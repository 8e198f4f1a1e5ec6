"""One SQLite file that this process alone has open: sound or refused, and written whole or not at all.

The file is locked from open to close, so that no second daemon writes it and nothing but the file itself is needed
(in WAL mode SQLite would share memory between processes, which network file systems cannot). That lock is one of
fcntl(2)'s oldest kind: it ends when this process closes *any* descriptor of the file, so nothing else here opens it.
It must not know what the tables mean.
"""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from gpusched.errors import HostFault
from gpusched.linux.files import make_private

__all__ = ["Database", "damaged"]

_PATIENCE_S: Final = 0.25
_LONGEST_WAL: Final = 4 << 20
_GO_ON: Final = "running jobs go on"
_UNWRITABLE: Final = (" cannot be written: {}", "make it and its directory writable")
_MEANINGS: Final = {
    sqlite3.SQLITE_FULL: (" cannot be written: the disk is full", "make room there"),
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
    sqlite3.SQLITE_IOERR: (" cannot be read or written: {}", "check your quota and the kernel's log (dmesg)"),
}
_SETTINGS: Final = (
    "locking_mode=EXCLUSIVE",
    "synchronous=FULL",
    "foreign_keys=ON",
    "trusted_schema=OFF",
    "cell_size_check=ON",
    "secure_delete=ON",  # an environment may hold secrets: what is deleted is overwritten
    f"journal_size_limit={_LONGEST_WAL}",
)


class Database:
    """The database file at `path`, open and locked from construction to close(); made, with mode 0600, if missing.

    `path` is that of the file. Every method raises HostFault where the file cannot be read or written, or is damaged;
    after that the database can be used as before, so that a write succeeds again once a full disk has room.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inside = False
        _prepare(path)
        try:
            # With isolation_level None, transactions begin and end only where this class begins and ends them.
            self._connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
            self._connection.create_function("matches", 2, _matches, deterministic=True)
        except sqlite3.Error as error:
            raise _fault(error, path) from None
        try:
            for setting in _SETTINGS:
                self.run(f"PRAGMA {setting}")
            with self.transaction():  # takes the lock, and fails where the file cannot be written
                self.number("SELECT count(*) FROM sqlite_schema")
        except BaseException:
            self.close()
            raise

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement yields."""
        if self._inside and not self._connection.in_transaction:  # SQLite itself rolled it back: not the rest alone
            raise HostFault(f"{self.path}: what was to be written together could not be", _GO_ON)
        try:
            return self._connection.execute(statement, values).fetchall()
        except UnicodeDecodeError as error:  # the name of something, in the error itself
            raise damaged(self.path, str(error)) from None
        except sqlite3.Error as error:
            raise _fault(error, self.path) from None

    def number(self, statement: str, values: Sequence[object] = ()) -> int:
        """Return the number that a statement yields, 0 for none."""
        rows = self.run(statement, values)
        return int(rows[0][0] or 0) if rows else 0

    def check(self) -> None:
        """Check the whole file for damage, in a millisecond for each MiB."""
        found = self.run("PRAGMA quick_check(1)")
        if found != [("ok",)]:
            raise damaged(self.path, " ".join(str(found[0][0]).split()) if found else "it cannot be checked")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is on disk when this ends, or nothing of it; one inside another is part of that one."""
        if self._inside:
            yield
            return
        self.run("BEGIN IMMEDIATE")
        self._inside = True
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.rollback()
            raise
        finally:
            self._inside = False

    def close(self) -> None:
        """Close the file, and let go of it; safe to call twice."""
        self._connection.close()


def _matches(name: str | None, glob: str) -> bool:
    """Match as in memory: SQLite's own GLOB negates a set otherwise."""
    return name is not None and fnmatchcase(name, glob)


def damaged(path: Path, how: str) -> HostFault:
    """Return the error for a database that cannot be used; the file is unchanged."""
    return HostFault(
        f"{path} is damaged, and was left as it is: {how}",
        f"move {path.name} and what begins with that name elsewhere, and a new one is made; {_GO_ON} meanwhile",
    )


def _prepare(path: Path) -> None:
    """See that there is a file, for this user alone. Raises HostFault where SQLite would overwrite something."""
    log = path.with_name(path.name + "-wal")
    try:
        make_private(path.parent)
        _touch(path)
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise HostFault(f"{path} is no file, so it is no database", "move it elsewhere")
        if found.st_size == 0 and log.exists() and log.stat().st_size:
            raise damaged(path, f"it is empty, and yet {log.name} holds a part of it")
        if found.st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        hint = f"make it writable, or set GPUSCHED_STATE_DIR to another directory; {_GO_ON}"
        raise HostFault(f"{path}: {error.strerror}", hint) from None


def _touch(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _fault(error: sqlite3.Error, path: Path) -> HostFault:
    """Return what an error of SQLite means to a person; see sqlite.org/rescode.html."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError):  # of Python's module: a text that is no UTF-8
        return damaged(path, str(error))
    code = (code or sqlite3.SQLITE_ERROR) & 0xFF  # the other bits are details that are not needed here
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return HostFault(f"{path} is in use by another process", f"see which one, and end it: fuser -v {path}")
    what, hint = _MEANINGS.get(code, (": {}", "it was not done"))
    return HostFault(f"{path}{what.format(error)}", f"{hint}; {_GO_ON}")
