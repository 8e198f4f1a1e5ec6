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
from gpusched.daemon.job import Job
from gpusched.daemon.state import DaemonState
from gpusched.errors import GpuschedError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.removed import REMOVED, RESULTS, is_ours, keep_number, make_own
from gpusched.model.status import JOB_TERMINAL, JobState

__all__ = ["remove"]

_JOBS: Final = "jobs"


def remove(state: DaemonState, ids: tuple[str, ...], *, keep_results: bool) -> Removed:
    """Remove jobs, and return which, and why each of the others stays. Raises HostFault.

    `keep_results`: what the job itself wrote is moved to STATE_DIR/results/ID.
    """
    followed = {
        earlier: job.id
        for job in state.jobs.live.values()
        if job.submission is not None and (job.state is JobState.QUEUED or job.submission.requeue)
        for earlier in (*job.submission.after, *job.submission.after_any)
    }
    removed, arrays, kept = list[str](), list[str](), dict[str, str]()
    for job_id in dict.fromkeys(ids):
        try:
            job = state.jobs.job(job_id)
            why = _why_not(state, job, followed)
            if why is None and job.is_array and state.jobs.members(job.id):
                arrays.append(job_id)
                continue
            if why is None:
                _move_away(state.settings.state_dir, job, keep_results=keep_results)
        except GpuschedError as error:
            why = error.message
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        if why is None:
            removed.append(job_id)
        else:
            kept[job_id] = why
    state.jobs.remove(removed)
    return Removed(ids=tuple(removed), kept=kept, arrays=tuple(arrays))


def _why_not(state: DaemonState, job: Job, followed: dict[str, str]) -> str | None:
    """Return why a job cannot be removed, None if it can."""
    if (needed := _needed(state, job, followed)) is not None:
        return needed
    path = state.settings.state_dir / _JOBS / job.id
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if path.parent.is_symlink() or not stat.S_ISDIR(found.st_mode):
        return f"{path} is a link to another place, or no directory"
    return "a process of it still lives" if JobDirectory(path).is_guarded() else None


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
    if keep_results and path.is_dir():
        _keep_results(path, state_dir / RESULTS)
    with suppress(FileNotFoundError):
        path.rename(away / f"{job.id}.{time.time_ns()}")


def _keep_results(path: Path, results: Path) -> None:
    """Move what a job wrote itself to a new directory RESULTS/ID, or ID.2 and so on."""
    make_own(results)
    names = [name for name in os.listdir(path) if not is_ours(name)]  # noqa: PTH208 (names alone)
    for kept in (results / f"{path.name}{'' if number == 1 else f'.{number}'}" for number in count(1)):
        with suppress(FileExistsError):
            kept.mkdir(mode=0o700)
            break
    for name in names:
        (path / name).rename(kept / name)
