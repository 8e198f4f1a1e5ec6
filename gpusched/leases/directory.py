"""Leases as files: one file per job in a directory that all users of the host share, or a user's own one.

    {"guard":      4711,"version":1,"uid":1000,"user":"alice","job":"snake-4","since":1790000000.5,"run_dir":"/..."}
    + {"device_uuid":"GPU-...","share_mib":1583,"replica":"actor.3"}      and "whole":true: nothing else is placed there
    - {"device_uuid":"GPU-...","share_mib":1583,"replica":"actor.4"}      given back: the replica has ended for good

A file counts while its committer or its job's guard holds a lock on it (locks.py), so that a crash frees it. A process
that plans and commits holds the directory's lock meanwhile. Of other users' files only their owner is believed, not
the user that they name. What is not understood is left out, and what one of them has there beyond 1 MiB: no file
there can make a reader wait.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from gpusched.errors import HostFault
from gpusched.leases.locks import COMMITTER, ENDING, PID_AT, PID_WIDTH, UNFINISHED, LockHeldError, lock_directory
from gpusched.linux.file_locks import held, lock
from gpusched.linux.files import make_private
from gpusched.linux.processes import owner
from gpusched.linux.regular_files import open_regular
from gpusched.linux.users import user_name
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Replica
from gpusched.settings import Settings

__all__ = [
    "LeaseDirectory",
    "LeaseHandle",
    "give_back",
    "lease_directory",
    "leases_of_plan",
    "leases_of_replicas",
    "replace_share",
]

_MOST_BYTES: Final = 1 << 20
_MOST_LINES: Final = 10_000
_BYTES_TO_OPEN: Final = 512  # what it costs to open a file, as many bytes as are read in that time
_LATEST: Final = 1 << 35  # seconds: the year 3058
_LONGEST_PREFIX: Final = 150
_HINT: Final = "make it writable, or set GPUSCHED_LEASE_DIR to another directory"

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[\w.:,@/+-]+\Z")]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1]
    guard: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    job: Word
    since: Annotated[float, msgspec.Meta(ge=0, le=_LATEST)]
    run_dir: Annotated[str, msgspec.Meta(max_length=4096)]


class _Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    device_uuid: Word
    share_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    replica: Word
    whole: bool = False


_headers = msgspec.json.Decoder(_Header)
_shares = msgspec.json.Decoder(_Share)


class LeaseHandle:
    """The committer's side of a lease that was committed now: it is let go or withdrawn, or it lapses."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Leave the lease to the guard, which has it now. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def rollback(self) -> None:
        """Remove the lease: nothing was started on it, and nothing will be (start.cancel_start). Safe to call twice."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self.path.unlink()
            self.release()


class LeaseDirectory:
    """The leases of a host, or of a state directory's simulated machines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked = False

    @contextmanager
    def locked(self, patience_s: float = 5.0) -> Iterator[None]:
        """Keep all others from planning and committing meanwhile; make the directory if there is none.

        Raises HostFault if another process has the lock for all of `patience_s`, or the directory cannot be used.
        """
        _make(self.path)
        try:
            descriptor = lock_directory(str(self.path), patience_s)
        except LockHeldError as error:
            raise HostFault(*_fault_of(error)) from None
        except OSError as error:
            raise HostFault(f"{self.path}/lock: {error.strerror}", _HINT) from None
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            os.close(descriptor)

    def read(self) -> tuple[Lease, ...]:
        """Return the shares that live jobs hold, our own and other users', none of them with a pid.

        A file without a lock is no lease; a reader with the directory's lock removes our own such files. Raises
        HostFault if the directory cannot be read.
        """
        try:
            paths = sorted(path for path in self.path.iterdir() if path.suffix in (ENDING, UNFINISHED))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise HostFault(f"{self.path}: {error.strerror}", _HINT) from None
        seen: set[int] = set()
        found: list[Lease] = []
        for path in self._bounded(paths):
            with suppress(OSError):  # it has just gone, or it is none of ours and odd
                found += self._read(path, seen)
        return tuple(found)

    def _bounded(self, paths: Iterable[Path]) -> Iterator[Path]:
        """Yield our own files, and of each other user's the first ones, as many as have 1 MiB."""
        sizes: dict[int, int] = {}
        for path in paths:
            with suppress(OSError):
                about = path.lstat()
                size = sizes[about.st_uid] = sizes.get(about.st_uid, 0) + about.st_size + _BYTES_TO_OPEN
                if size <= _MOST_BYTES or about.st_uid == os.geteuid():
                    yield path

    def commit(self, job: str, leases: Sequence[Lease], run_dir: Path) -> LeaseHandle:
        """Take the shares `leases` for the job in `run_dir`; RUN_DIR/lease names the file afterwards.

        Only inside locked(), and only what was planned there beside what read() returned. The returned hold keeps it
        alive until the job's guard has it. Raises HostFault.
        """
        if not self._locked:
            raise AssertionError("a commit without the lock of the lease directory")
        name = f"{os.geteuid()}-{job[:_LONGEST_PREFIX]}-{os.urandom(4).hex()}"
        path, unfinished = self.path / f"{name}{ENDING}", self.path / f"{name}{UNFINISHED}"
        try:
            descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            hold = LeaseHandle(unfinished, descriptor)
            try:
                lock(descriptor, COMMITTER)
                _write(descriptor, _content(job, leases, run_dir))
                os.fchmod(descriptor, 0o644)  # whatever the umask is
                unfinished.rename(path)
                hold.path = path
                _link(run_dir / "lease", path)
            except BaseException:
                hold.rollback()
                raise
        except OSError as error:
            raise HostFault(f"{error.filename or path}: {error.strerror}", _HINT) from None
        return hold

    def _read(self, path: Path, seen: set[int]) -> list[Lease]:
        """Return the leases of one file; `seen` are the inodes that were read. Raises OSError."""
        descriptor = open_regular(path, os.O_RDONLY)
        try:
            about = os.fstat(descriptor)
            if about.st_ino in seen:
                return []
            seen.add(about.st_ino)
            if not held(descriptor, 0, 2):
                if self._locked and about.st_uid == os.geteuid():
                    path.unlink()
                return []
            if about.st_size > _MOST_BYTES or path.suffix == UNFINISHED:
                return []
            return _parsed(os.read(descriptor, _MOST_BYTES), about.st_uid)
        finally:
            os.close(descriptor)


def lease_directory(settings: Settings, *, simulated: bool) -> LeaseDirectory:
    """Return where the leases on this host's devices lie, or those on the devices of machines that are not here."""
    return LeaseDirectory(settings.state_dir / "simulated-leases" if simulated else settings.lease_dir)


def leases_of_plan(plan: Plan, job: str) -> tuple[Lease, ...]:
    """Return what the replicas of a plan are to hold: one lease for every device of every replica."""
    return leases_of_replicas(plan.replicas, job)


def leases_of_replicas(replicas: Iterable[Replica], job: str) -> tuple[Lease, ...]:
    """Return what planned replicas are to hold: one lease for every device of every replica."""
    return tuple(
        Lease(device_uuid=uuid, share_mib=share, job=job, replica=replica.name, whole=replica.whole)
        for replica in replicas
        for uuid, share in (
            (replica.device_uuid, replica.share_mib),
            *((more.device_uuid, more.share_mib) for more in replica.further),
        )
        if uuid is not None
    )


def give_back(path: Path, replica: str) -> None:
    """Give back what a replica that has ended for good held; `path` is JOBDIR/lease, a link. No lease, nothing to do.

    Raises OSError.
    """
    try:
        descriptor = open_regular(path.readlink(), os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        position = 0
        for line in os.read(descriptor, _MOST_BYTES).splitlines(keepends=True):
            if line.startswith(b"+") and _shares.decode(line[1:]).replica == replica:
                os.pwrite(descriptor, b"-", position)
            position += len(line)
    finally:
        os.close(descriptor)


def replace_share(path: Path, replica: str, device_uuid: str, share_mib: int) -> None:
    """Have a replica hold `share_mib` of a device instead of what it holds there; `path` is that of its lease's file.

    Only under the directory's lock. Until it is done the file has both shares: who reads it then counts too much, never
    too little. Raises FileNotFoundError where the replica holds nothing there, and OSError.
    """
    descriptor = open_regular(path, os.O_RDWR)
    try:
        content, position = os.read(descriptor, _MOST_BYTES + 1), 0
        lines = content.splitlines(keepends=True)
        old = []
        for line in lines:
            if line.startswith(b"+") and (share := _shares.decode(line[1:])).replica == replica:
                old += [(position, share)] if share.device_uuid == device_uuid else []
            position += len(line)
        if not old:
            raise FileNotFoundError(errno.ENOENT, "it holds no share there", str(path))
        new = b"+ " + msgspec.json.encode(msgspec.structs.replace(old[0][1], share_mib=share_mib)) + b"\n"
        if len(content) + len(new) > _MOST_BYTES or len(lines) >= _MOST_LINES or not content.endswith(b"\n"):
            raise OSError(errno.EFBIG, "the file has no room", str(path))
        if os.pwrite(descriptor, new, len(content)) < len(new):
            os.ftruncate(descriptor, len(content))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        for position, _ in old:
            os.pwrite(descriptor, b"-", position)
    finally:
        os.close(descriptor)


def _content(job: str, leases: Sequence[Lease], run_dir: Path) -> bytes:
    """Return a lease file's bytes. The guard's pid comes first and has a fixed width, to be written in place."""
    uid = os.geteuid()
    about = {
        "version": 1,
        "uid": uid,
        "user": user_name(uid),
        "job": job,
        "since": time.time(),
        "run_dir": str(run_dir),
    }
    header = b'{"guard":%*d,' % (PID_WIDTH, 0) + msgspec.json.encode(about)[1:]
    assert header.index(b":") + 1 == PID_AT  # noqa: S101
    shares = (
        _Share(device_uuid=lease.device_uuid, share_mib=lease.share_mib, replica=lease.replica, whole=lease.whole)
        for lease in leases
    )
    return b"\n".join([header, *(b"+ " + msgspec.json.encode(share) for share in shares), b""])


def _parsed(content: bytes, uid: int) -> list[Lease]:
    """Return the leases that are held by the file of the user `uid`; none if it is not understood."""
    lines = content.splitlines()[:_MOST_LINES]
    try:
        header = _headers.decode(lines[0])
        shares = [_shares.decode(line[1:]) for line in lines[1:] if line.startswith(b"+")]
    except (IndexError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    user = None if uid == os.geteuid() else user_name(uid)
    guard = header.guard if header.guard and owner(header.guard) == uid else None  # init is no guard
    return [
        Lease(
            device_uuid=share.device_uuid,
            share_mib=share.share_mib,
            job=header.job,
            replica=share.replica,
            user=user,
            since=header.since,
            guard=guard,
            run_dir=header.run_dir,
            whole=share.whole,
        )
        for share in shares
    ]


def _fault_of(error: LockHeldError) -> tuple[str, str]:
    uid = owner(error.pid) if error.pid else None
    of = "" if uid is None else f" of user {user_name(uid)}"
    return f"{error}{of}", "wait until it has planned, or end it, and try again"


def _make(path: Path) -> None:
    """Make the directory, this user's only, if there is none; refuse one that others could move, or files in it."""
    try:
        make_private(path)
        about, above = path.stat(), path.parent.stat()
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", _HINT) from None
    for one, uid in ((path, about.st_uid), (path.parent, above.st_uid)):
        if uid not in (os.geteuid(), 0):
            raise HostFault(f"{one} belongs to user {user_name(uid)}", _HINT)
    if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
        raise HostFault(f"{path} lets others remove leases", "give it mode 1777, or 700 for one user only")


def _link(link: Path, target: Path) -> None:
    temporary = link.with_name(f"{link.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.absolute())
    temporary.replace(link)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
