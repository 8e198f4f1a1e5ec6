"""The keys by which other hosts join a job that listens: make, list and revoke them. Nothing here returns a secret."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from gpusched.api.validation import require_type
from gpusched.errors import NotFound
from gpusched.execution.hosts import KEYS
from gpusched.joining import keys
from gpusched.settings import queue_settings

__all__ = ["Key", "create", "job_ids", "list_keys", "revoke"]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a job. `created` and `revoked` in Unix seconds; `file` is None once it is gone."""

    job: str
    name: str
    public: str
    created: float
    revoked: float | None
    file: str | None

    @classmethod
    def of(cls, directory: Path, key: keys.Listed) -> Self:
        """Return a listed key of that directory of keys."""
        file = directory / f"{key.name}.key"
        there = str(file) if file.exists() else None
        return cls(job=directory.parent.name, file=there, **msgspec.structs.asdict(key))


def create(job: str, name: str) -> Key:
    """Make one more key of a job, such as "lab2" for that host; who has its file can send batches to the job.

    Raises UsageError for a name that cannot be or is taken, NotFound for a job that does not listen, HostFault.
    """
    directory = _directory(job, name)
    keys.new_key(directory, name)
    return _named(directory, name)


def list_keys(job: str | None = None) -> tuple[Key, ...]:
    """Return the keys that were made of a job, or of all, oldest first. Raises NotFound and HostFault."""
    jobs = job_ids() if job is None else [job]
    return tuple(key for each in jobs for key in _keys(_directory(each)))


def revoke(job: str, name: str) -> Key:
    """Let no host in with that key; one that is in with it is cut off within seconds. Raises NotFound and HostFault."""
    directory = _directory(job, name)
    keys.revoke(directory, name)
    return _named(directory, name)


def job_ids(begin: str = "") -> list[str]:
    """Return the ids that begin so of jobs that have keys, those that came first before the others."""
    require_type(begin, str, "begin")
    found = (queue_settings(os.environ).state_dir / "jobs").glob(f"*/{KEYS}/{keys.SERVER}")
    names = [file.parts[-3] for file in sorted(found, key=lambda file: file.stat().st_mtime)]
    return [name for name in names if name.startswith(begin)]


def _keys(directory: Path) -> Iterator[Key]:
    return (Key.of(directory, key) for key in keys.listed(directory))


def _named(directory: Path, name: str) -> Key:
    return next(key for key in _keys(directory) if key.name == name)


def _directory(job: str, name: str = "") -> Path:
    """Return the directory of a job's keys. Raises NotFound, with what to do, for a job that has none, and UsageError.

    `name`, that of a key, is checked to be text.
    """
    require_type(job, str, "job")
    require_type(name, str, "name")
    directory = queue_settings(os.environ).state_dir / "jobs" / job
    if "/" in job or job in ("", ".", "..") or not directory.is_dir():
        raise NotFound(f"there is no job {job}", "see `gpusched ps --all`, and `gpusched keys list`")
    if not (directory / KEYS / keys.SERVER).exists():
        hint = "launch it with --listen tcp://0.0.0.0:5555; a job in the queue gets its keys when it starts"
        raise NotFound(f"{job} does not listen, or listens without keys", hint)
    return directory / KEYS
