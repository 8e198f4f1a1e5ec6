"""What jobs used, those that run and those that ended."""

from collections.abc import Iterable, Iterator, Sequence

from gpusched.daemon.job import Job
from gpusched.daemon.role_usage import roles_used
from gpusched.daemon.state import DaemonState
from gpusched.model.array import number_of_member
from gpusched.model.status import JobState
from gpusched.model.usage import RoleUsage

__all__ = ["usage_of"]


def usage_of(state: DaemonState, ids: Sequence[str], since: float, most: int) -> list[RoleUsage]:
    """Return a row for each role of the jobs `ids`, or of those that run and those that ended since; `most` of them.

    An array stands for its members that have begun. Times in Unix seconds. Raises NotFound.
    """
    if not ids:
        return [*_of_live(state, state.jobs.live.values()), *state.jobs.usage_since(since, most)][:most]
    chosen = dict.fromkeys(one for job_id in ids for one in _members(state, state.jobs.job(job_id)))
    live = [state.jobs.live[one] for one in chosen if one in state.jobs.live]
    ended = state.jobs.usage([one for one in chosen if one not in state.jobs.live])
    return [*_of_live(state, live), *(row for row in ended if (row.ended or since) >= since)][:most]


def _of_live(state: DaemonState, jobs: Iterable[Job]) -> Iterator[RoleUsage]:
    for job in jobs:
        if job.state is not JobState.QUEUED:
            yield from roles_used(state.shown(job))


def _members(state: DaemonState, job: Job) -> list[str]:
    if not job.is_array:
        return [job.id]
    begun = dict.fromkeys(one for one, _ in state.jobs.members(job.id)) | dict.fromkeys(state.jobs.arrays.live(job.id))
    return sorted(begun, key=number_of_member)
