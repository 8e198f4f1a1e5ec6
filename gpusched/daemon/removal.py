"""Jobs that have ended are removed: first their directories are moved away, then they leave the table.

What lies in a directory is deleted by who asked, not by the daemon: that may take long.
"""

import os
import stat
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from gpusched.control.messages import Removed
from gpusched.daemon.state import DaemonState
from gpusched.errors import GpuschedError, NotFound
from gpusched.execution.directory import JobDirectory
from gpusched.execution.removed import REMOVED, RESULTS, STILL_LIVES, is_ours, keep_number, make_own, note_removed_logs
from gpusched.model.array import array_of
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.job import Job

__all__ = ["remove", "remove_logs"]

_JOBS: Final = "jobs"
_LOGS: Final = "logs"


def remove(state: DaemonState, ids: tuple[str, ...], *, keep_results: bool) -> Removed:
    """Remove jobs, and return which are no more, and why each of the others stays. Raises HostFault.

    One that is not known any more is among the former: a client that gets no answer asks again.

    `keep_results`: what the job itself wrote is moved to STATE_DIR/results/ID.
    """
    followed = {
        earlier: job.id
        for job in state.jobs.live.values()
        if job.submission is not None and (job.state is JobState.QUEUED or job.submission.requeue)
        for earlier in (*job.submission.after, *job.submission.after_any)
    }
    removed, gone, arrays, kept = list[str](), list[str](), list[str](), dict[str, str]()
    for job_id in dict.fromkeys(ids):
        try:
            job = state.jobs.job(job_id)
            why = _why_not(state, job, followed)
            if why is None and job.is_array and state.jobs.store.members(job.id, 1):
                arrays.append(job_id)
                continue
            if why is None:
                _move_away(state.settings.state_dir, job, keep_results=keep_results)
        except NotFound:
            gone.append(job_id)
            continue
        except GpuschedError as error:
            why = error.message
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        if why is None:
            removed.append(job_id)
        else:
            kept[job_id] = why
    state.jobs.remove(removed)
    return Removed(ids=(*removed, *gone), kept=kept, arrays=tuple(arrays))


def remove_logs(state: DaemonState, job_id: str) -> bool:
    """Move the logs of a job that has ended away, and leave a note of that; return whether there were some.

    Not those of a job of which a process lives, and none through a link.
    """
    path = state.settings.state_dir / _JOBS / job_id
    try:
        if not stat.S_ISDIR((path / _LOGS).lstat().st_mode) or _why_not_directory(path) is not None:
            return False
        away = state.settings.state_dir / REMOVED
        make_own(away)
        note_removed_logs(path)
        (path / _LOGS).rename(away / f"{job_id}.{_LOGS}.{time.time_ns()}")
    except OSError:  # there are none, or they stay
        return False
    return True


def _why_not(state: DaemonState, job: Job, followed: dict[str, str]) -> str | None:
    """Return why a job cannot be removed, None if it can."""
    if (needed := _needed(state, job, followed)) is not None:
        return needed
    return _why_not_directory(state.settings.state_dir / _JOBS / job.id)


def _why_not_directory(path: Path) -> str | None:
    """Return why a job's directory cannot be moved, None if it can, or is not there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if path.parent.is_symlink() or not stat.S_ISDIR(found.st_mode):
        return f"{path} is a link to another place, or no directory"
    return STILL_LIVES if JobDirectory(path).is_guarded() else None


def _needed(state: DaemonState, job: Job, followed: dict[str, str]) -> str | None:
    """Return what a job is needed for, whatever its directory is, None for nothing."""
    why = None
    if job.state not in JOB_TERMINAL:
        why = f"it is {job.state}"
    elif state.jobs.is_unsaved(job.id):
        why = "its end is not saved yet"
    elif job.id in followed:
        why = f"{followed[job.id]} is to follow it"
    elif job.array in state.jobs.live:
        why = f"{job.array}, of which it is a member, has not ended"
    return why


def _move_away(state_dir: Path, job: Job, *, keep_results: bool) -> None:
    """Move a job's directory away, its results first: what fails leaves the rest where it is. Raises OSError.

    All is moved within the state directory, and never through a link.
    """
    path, away = state_dir / _JOBS / job.id, state_dir / REMOVED
    make_own(away)
    keep_number(state_dir, job.id)
    for one in (*(_of_members(path) if job.is_array else ()), path):
        with suppress(FileNotFoundError):
            if keep_results and stat.S_ISDIR(one.lstat().st_mode):
                _keep_results(one, state_dir / RESULTS)
            one.rename(away / f"{one.name}.{time.time_ns()}")


def _of_members(array: Path) -> list[Path]:
    """Return directories of members that have no row: they were to begin again, or a daemon ended while they began."""
    return [array.with_name(name) for name in os.listdir(array.parent) if array_of(name) == array.name]  # noqa: PTH208 (names alone)


def _keep_results(path: Path, results: Path) -> None:
    """Move what a job wrote itself, if anything, to a new directory RESULTS/ID, or ID.2 and so on."""
    make_own(results)
    names = [name for name in os.listdir(path) if not is_ours(name)]  # noqa: PTH208 (names alone)
    if not names:
        return
    for kept in (results / f"{path.name}{'' if number == 1 else f'.{number}'}" for number in count(1)):
        with suppress(FileExistsError):
            kept.mkdir(mode=0o700)
            break
    for name in names:
        (path / name).rename(kept / name)
