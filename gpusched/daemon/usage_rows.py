"""What jobs used, those that run and those that ended."""

from collections.abc import Iterable, Iterator, Sequence

from gpusched.daemon.state import DaemonState
from gpusched.model.array import number_of_member
from gpusched.model.status import JobState
from gpusched.model.usage import RoleUsage
from gpusched.storage.job import Job
from gpusched.storage.role_usage import roles_used

__all__ = ["usage_of"]


def usage_of(state: DaemonState, ids: Sequence[str], since: float, most: int) -> list[RoleUsage]:
    """Return a row for each role of the jobs `ids`, or of those that run and those that ended since; `most` of them.

    An array stands for its members that have begun. Times in Unix seconds. Raises NotFound.
    """
    if not ids:
        return [*_of_live(state, state.jobs.live.values()), *state.jobs.store.usage.since(since, most)][:most]
    found = {(row.job, row.role): row for job_id in ids for row in _of_one(state, state.jobs.job(job_id), most)}
    return [row for row in found.values() if row.ended is None or row.ended >= since][:most]


def _of_one(state: DaemonState, job: Job, most: int) -> Iterator[RoleUsage]:
    if not job.is_array:
        yield from _of_live(state, [job]) if job.id in state.jobs.live else state.jobs.store.usage.of([job.id])
        return
    live = (state.jobs.live[member] for member in sorted(state.jobs.arrays.live(job.id), key=number_of_member))
    rows = [*_of_live(state, live), *state.jobs.store.usage.of_array(job.id, most)]
    yield from sorted(rows, key=lambda row: number_of_member(row.job))


def _of_live(state: DaemonState, jobs: Iterable[Job]) -> Iterator[RoleUsage]:
    for job in jobs:
        if job.state is not JobState.QUEUED:
            yield from roles_used(state.shown(job))
