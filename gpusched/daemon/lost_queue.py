"""Jobs that wait, of which the database alone knows what they are to run; and what becomes of them without it.

Each job that was accepted has a directory, with nothing in it before its first start (docs/decisions/0008). So a
database that has gone, or was cut to nothing, differs from one that has never been.
"""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault
from gpusched.execution.read_jobs import START_PATIENCE_S
from gpusched.model.status import JobState
from gpusched.storage.job import Job
from gpusched.storage.job_status import status_of

__all__ = ["call_lost", "jobs_without_database"]

_LOG: Final = logging.getLogger(__name__)
_NAMED: Final = 3
_GONE: Final = "the database was removed that knew what it was to run: submit it again"


def jobs_without_database(database: Path, jobs: Path) -> list[str]:
    """Return the jobs that have waited in a database that is gone; none if it is there.

    Raises HostFault for one that is empty and should not be, as after a file system was repaired: that was not done on
    purpose, and there may be a copy.
    """
    try:
        if database.stat().st_size:
            return []
    except FileNotFoundError:
        return _unstarted(jobs)
    except OSError:  # opening it will fail as well, with a message
        return []
    waiting = _unstarted(jobs)
    if waiting:
        names = ", ".join(waiting[:_NAMED]) + (f" and {len(waiting) - _NAMED} more" * (len(waiting) > _NAMED))
        raise HostFault(
            f"{database} is empty, and what {names} {'is' if len(waiting) == 1 else 'are'} to run stood there alone",
            "put a copy in its place; or move it and what begins with its name elsewhere: in a new one "
            f"{names} {'is' if len(waiting) == 1 else 'are'} lost; running jobs go on meanwhile",
        )
    return []


def call_lost(state: DaemonState, names: Sequence[str]) -> None:
    """Have the new database know the jobs that waited in the one before as lost."""
    jobs = state.settings.state_dir / "jobs"
    for name in sorted({*names} & {*_unstarted(jobs)}):  # a launch may have just made the directory when it was read
        path = jobs / name
        when = path.stat().st_mtime if path.exists() else time.time()
        job = Job(id=name, run_dir=str(path), created=when, state=JobState.LOST, ended=time.time(), message=_GONE)
        state.jobs.adopt(msgspec.structs.replace(job, last=status_of(job)))
        _LOG.warning("%s is lost: %s", name, _GONE)


def _unstarted(jobs: Path) -> list[str]:
    try:
        with os.scandir(jobs) as entries:
            return sorted(entry.name for entry in entries if entry.name.isprintable() and _is_unstarted(entry))
    except OSError:
        return []


def _is_unstarted(entry: "os.DirEntry[str]") -> bool:
    """Return whether nothing is in a job's directory, or for long no more than a start that failed has left."""
    try:
        with os.scandir(entry.path) as content:
            if next(content, None) is None:
                return True
        old = abs(time.time() - entry.stat(follow_symlinks=False).st_mtime) > START_PATIENCE_S
        return old and not any(os.path.lexists(f"{entry.path}/{name}") for name in ("spec.json", "status.json"))
    except OSError:
        return False
