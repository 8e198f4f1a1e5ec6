"""Jobs as their directories show them: what `ps`, `logs` and `status` read where no daemon answers.

The queue itself is known to the daemon alone. Of a job that waits in it there is a directory without a spec.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusched.errors import NotFound
from gpusched.model.array import array_of, members_meant, number_of_member
from gpusched.settings import Settings

if TYPE_CHECKING:  # completion needs the names alone
    from gpusched.execution.read_jobs import Brief
    from gpusched.model.status import JobStatus

__all__ = [
    "NOT_STARTED",
    "has_jobs",
    "has_queue",
    "has_waiting",
    "job_names",
    "jobs_on_disk",
    "queue_stamp",
    "waiting_on_disk",
]

NOT_STARTED: Final = "it has not started, and no daemon answers: gpusched daemon start"
_DATABASE: Final = "gpusched.db"
_JOBS: Final = "jobs"
_SPEC, _STATUS, _PREPARED = "spec.json", "status.json", "logs"


def has_queue(settings: Settings) -> bool:
    """Return whether a daemon has ever kept a queue in this state directory."""
    return lexists(settings.state_dir / _DATABASE)


def queue_stamp(settings: Settings) -> tuple[int, int]:
    """Return what differs after the daemon has saved a change of its queue: when, and the size of what it wrote.

    It costs microseconds, and the daemon nothing.
    """
    try:
        found = (settings.state_dir / f"{_DATABASE}-wal").stat()  # SQLite's log: each change is written there first
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def has_jobs(settings: Settings) -> bool:
    """Return whether this state directory can have a job: one that waits, runs or ended."""
    return has_queue(settings) or bool(job_names(settings))


def has_waiting(settings: Settings) -> bool:
    """Return whether a job waits that has never started. No job is read, and no daemon asked."""
    return any(True for _ in _unstarted(settings))


def job_names(settings: Settings) -> list[str]:
    """Return the ids of all jobs that have a directory, in no order; none if that cannot be read."""
    try:
        with os.scandir(settings.state_dir / _JOBS) as entries:
            return [one.name for one in entries if one.name.isprintable() and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def jobs_on_disk(settings: Settings, ids: Sequence[str], ended: int) -> tuple["JobStatus", ...]:
    """Return the jobs `ids`, or all that live, oldest first, and the `ended` latest of the others, latest first.

    Each of `ids` is one, or a name, or a glob of either; with a glob it is all that match. Raises NotFound for one that
    means no job, HostFault where the state directory cannot be read.
    """
    from gpusched.execution.read_jobs import list_jobs, read_briefs
    from gpusched.model.status import JOB_TERMINAL

    jobs, known = settings.state_dir / _JOBS, frozenset(job_names(settings))
    if not known and not ids:
        list_jobs(settings.state_dir)  # raises where it cannot be read
        return ()
    names = [name for name in known if array_of(name) not in known]
    kept = {} if ids and known.issuperset(ids) else read_briefs(jobs, names)
    if ids:
        names, several = _meant(jobs, known, names, kept, ids)
        if not several:
            return tuple(_job(jobs / job_id) for job_id in names)
    ends = {
        name: kept[name].ended or kept[name].created
        for name in names
        if name in kept and kept[name].state in JOB_TERMINAL
    }
    latest = sorted(ends, key=lambda name: (ends[name], name), reverse=True)
    queue = has_queue(settings)
    found = [job for name in names if name not in ends and (job := _listed(jobs / name, queue=queue))]
    found += islice((job for name in latest if (job := _listed(jobs / name, queue=queue))), ended)
    live = [job for job in found if job.state not in JOB_TERMINAL]
    over = [job for job in found if job.state in JOB_TERMINAL]
    live.sort(key=lambda job: (job.created, job.id))
    over.sort(key=lambda job: (job.ended or job.created, job.id), reverse=True)
    return (*live, *over[:ended])


def _meant(
    jobs: Path, known: frozenset[str], alone: Sequence[str], kept: "Mapping[str, Brief]", asked: Sequence[str]
) -> tuple[list[str], bool]:
    """Return the ids that are meant, each once, and whether a glob is among `asked`. An id, a name, a glob: in order.

    A name means the job that lives, or of those that ended the latest. `alone`: no members of arrays, which have ids
    and nothing else.
    """
    named = {job_id: one.name or "" for job_id, one in kept.items()}
    found, several = dict[str, None](), False
    for one in asked:
        if one in known:
            some = [one]
        elif same := [job_id for job_id, name in named.items() if name == one]:
            some = [_latest(jobs, kept, same)]
        elif members := _members(jobs, known, kept, one):
            some = members
        else:
            some = [each for each in alone if fnmatchcase(each, one) or fnmatchcase(named.get(each, ""), one)]
            several = True
        if not some:
            raise NotFound(f"there is no job {one}", "see `gpusched ps --all`; names of jobs that wait need a daemon")
        found.update(dict.fromkeys(some))
    return list(found), several


def _members(jobs: Path, known: frozenset[str], kept: "Mapping[str, Brief]", name: str) -> list[str]:
    """Return the members that a name means (see model.array), in the order of their numbers."""
    if (meant := members_meant(name)) is None:
        return []
    array, numbers = meant
    if array not in known:
        same = [job_id for job_id, one in kept.items() if one.name == array]
        array = _latest(jobs, kept, same) if same else array
    found = [one for one in known if array_of(one) == array and number_of_member(one) in numbers]
    return sorted(found, key=number_of_member)


def _latest(jobs: Path, kept: "Mapping[str, Brief]", ids: Sequence[str]) -> str:
    """Return which of these jobs lives, or has ended last; what was lost has no end in its files."""
    from gpusched.model.status import JOB_TERMINAL

    lives = [one for one in ids if kept[one].state not in JOB_TERMINAL and _job(jobs / one).state not in JOB_TERMINAL]
    return max(lives or ids, key=lambda one: (kept[one].ended or kept[one].created, one))


def waiting_on_disk(settings: Settings) -> tuple["JobStatus", ...]:
    """Return the jobs that wait in a queue without a daemon: all that is known is their ids and their age."""
    return tuple(map(_waiting, _unstarted(settings)))


def _unstarted(settings: Settings) -> Iterator[Path]:
    """Yield the directories of jobs that wait and have never started."""
    for name in job_names(settings) if has_queue(settings) else ():
        path = settings.state_dir / _JOBS / name
        if not (_is_prepared(path) or lexists(path / _STATUS)):
            yield path


def _listed(path: Path, *, queue: bool) -> "JobStatus | None":
    """Return the job of a directory; None for what a start that failed has left, or a launch has just made."""
    return _job(path) if lexists(path / _SPEC) or (queue and not _is_prepared(path)) else None


def _is_prepared(path: Path) -> bool:
    return lexists(path / _SPEC) or lexists(path / _PREPARED)


def _job(path: Path) -> "JobStatus":
    from gpusched.execution.read_jobs import read_job

    return read_job(path) if lexists(path / _SPEC) or lexists(path / _STATUS) else _waiting(path)


def _waiting(path: Path) -> "JobStatus":
    from gpusched.model.status import JobState, JobStatus

    try:
        created = path.stat().st_mtime
    except OSError:
        created = 0.0
    return JobStatus(
        id=path.name,
        workload=path.name.rpartition("-")[0],
        state=JobState.QUEUED,
        counts=(),
        replicas=(),
        run_dir=str(path),
        created=created,
        why=NOT_STARTED,
    )
