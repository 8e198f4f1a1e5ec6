"""Which jobs a selection means (see model.selection)."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from gpusched.errors import NotFound, UsageError
from gpusched.model.array import member_id, members_meant, number_of_member
from gpusched.model.selection import Selection, is_glob
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.storage.job import Job
from gpusched.storage.job_status import shown_state
from gpusched.storage.job_table import JobTable
from gpusched.storage.search import searched

__all__ = ["selected"]

_MOST_UNBEGUN: Final = 10_000


def selected(jobs: JobTable, asked: Selection) -> tuple[str, ...]:
    """Return the ids of the jobs, each once: in the order of the names, and of each those that live first.

    Those that live are the oldest first, those that ended the latest first. Raises NotFound for a name that means none,
    and for a group that no job is or was in, and of which nothing is set.
    """
    found: dict[str, None] = {}
    for name in asked.names:
        found |= dict.fromkeys(_named(jobs, name, asked))
    if not asked.names:
        found |= dict.fromkeys(_every(jobs, asked))
    if not found and asked.group is not None and not _is_group(jobs, asked.group):
        raise NotFound(f"there is no group {asked.group}", "see `gpusched group`")
    if asked.last and found:
        return (max(map(jobs.job, found), key=lambda job: (job.created, len(job.id), job.id)).id,)
    return tuple(found)


def _is_group(jobs: JobTable, name: str) -> bool:
    of_it = Selection(group=name, ended=1)
    return name in jobs.groups or next(iter(_every(jobs, of_it)), None) is not None


def _named(jobs: JobTable, name: str, asked: Selection) -> Iterable[str]:
    job_id = name if name in jobs.known else jobs.id_of(name)
    if job_id is not None:
        return [job_id] if not _conditions(asked) or _meets(jobs, jobs.job(job_id), asked) else []
    if (members := _members(jobs, name, unbegun=asked.unbegun and not _conditions(asked))) is not None:
        return [one for one in members if not _conditions(asked) or _meets(jobs, jobs.job(one), asked)]
    if not is_glob(name):
        hint = "name each job by itself, without commas" if "," in name else "see `gpusched ps --all`"
        raise NotFound(f"there is no job {name}", hint)
    found = list(_every(jobs, asked, name))
    if not found and not _conditions(asked):
        which = "" if asked.ended else " that runs or waits"
        raise NotFound(f"no job{which} matches {name}", "see `gpusched ps --all`")
    return found


def _members(jobs: JobTable, name: str, *, unbegun: bool) -> list[str] | None:
    """Return the ids of the members that a name means, in the order of their numbers; None if it means none of that.

    Raises NotFound, and UsageError for a name of very many that have not begun.
    """
    meant = members_meant(name)
    array = None if meant is None else (meant[0] if meant[0] in jobs.known else jobs.id_of(meant[0]))
    if meant is None or array is None or not jobs.job(array).is_array:
        return None
    unbegun = unbegun and array in jobs.arrays and not jobs.live[array].stop_asked
    if unbegun and len(meant[1]) == 1 and jobs.arrays[array].waits(meant[1].start):
        return [member_id(array, meant[1].start)]  # without a search among very many
    begun = {job_id: None for job_id, _ in jobs.store.members(array)} | dict.fromkeys(jobs.arrays.live(array))
    numbers = {number_of_member(job_id): job_id for job_id in begun}
    if unbegun and not name.endswith("[]"):
        waiting = [number for number in jobs.arrays[array].waiting() if number in meant[1]]
        if len(waiting) > _MOST_UNBEGUN:
            raise UsageError(f"{name} means {len(waiting):,} members that have not begun", f"name {array}, or fewer")
        numbers |= {number: member_id(array, number) for number in waiting}
    chosen = [numbers[number] for number in sorted(numbers) if number in meant[1]]
    if not chosen and not name.endswith("[]"):
        raise NotFound(f"no member {name} has begun", f"see gpusched results {array}")
    return chosen


def _every(jobs: JobTable, asked: Selection, glob: str | None = None) -> Iterator[str]:
    alone = (job for job in jobs.live.values() if job.array is None)
    yield from (job.id for job in alone if _matches(job, glob) and _meets(jobs, job, asked))
    if asked.ended and (not _by_state(asked) or not JOB_TERMINAL.isdisjoint(asked.states)):
        yield from jobs.search(
            glob, asked, lambda job: job.array is None and _matches(job, glob) and _meets(jobs, job, asked)
        )


def _matches(job: Job, glob: str | None) -> bool:
    name = job.submission.name if job.submission else None
    return glob is None or fnmatchcase(job.id, glob) or (name is not None and fnmatchcase(name, glob))


def _meets(jobs: JobTable, job: Job, asked: Selection) -> bool:
    held = asked.held and job.held and job.state not in JOB_TERMINAL
    in_state = not _by_state(asked) or held or shown_state(job) in asked.states
    lately = asked.since is None or job.ended is None or job.ended >= asked.since
    before = asked.before is None or (job.ended is not None and job.ended < asked.before)
    in_group = asked.group is None or (job.submission is not None and job.submission.group == asked.group)
    waits = not asked.waits or _waits(jobs, job)
    return in_state and waits and lately and before and in_group and (asked.text is None or asked.text in searched(job))


def _waits(jobs: JobTable, job: Job) -> bool:
    """Return whether something of a job waits to start: of an array, a member that has not begun."""
    if job.state is not JobState.QUEUED or job.stop_asked:
        return False
    return not job.is_array or next(jobs.arrays[job.id].waiting(), None) is not None


def _conditions(asked: Selection) -> bool:
    return (
        _by_state(asked)
        or asked.waits
        or any(one is not None for one in (asked.since, asked.before, asked.text, asked.group))
    )


def _by_state(asked: Selection) -> bool:
    return bool(asked.states) or asked.held
