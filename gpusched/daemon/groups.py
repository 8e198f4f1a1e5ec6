"""The groups of the queue: what is set of them, and how many of their jobs run and wait."""

from collections import Counter

from msgspec.structs import asdict, replace

from gpusched.model.queue_group import GroupChange, GroupStatus, QueueGroup
from gpusched.model.status import JobState
from gpusched.scheduling.wait_reasons import group_paused
from gpusched.storage.job_table import JobTable

__all__ = ["change_group", "groups_of", "limits_of", "why_paused"]


def limits_of(jobs: JobTable) -> dict[str, int]:
    """Return of each group that has a limit how many of its jobs may run at the same time."""
    return {group.name: group.at_most for group in jobs.groups.values() if group.at_most is not None}


def why_paused(jobs: JobTable, name: str | None) -> str | None:
    """Return why no job of the group starts, None if it is not paused."""
    group = None if name is None else jobs.groups.get(name)
    return group_paused(group.name) if group is not None and group.paused else None


def groups_of(jobs: JobTable, name: str | None = None) -> tuple[GroupStatus, ...]:
    """Return the group of that name, or all of which something is set or a job lives, by name."""
    counts: Counter[tuple[str, bool]] = Counter()
    for job in jobs.live.values():
        if job.submission is not None and job.submission.group is not None:
            counts[job.submission.group, job.state is JobState.QUEUED] += 1
    names = {*jobs.groups, *(group for group, _ in counts)} if name is None else {name}
    found = (jobs.groups.get(one) or QueueGroup(name=one) for one in sorted(names))
    return tuple(
        GroupStatus(**asdict(group), running=counts[group.name, False], waiting=counts[group.name, True])
        for group in found
    )


def change_group(jobs: JobTable, name: str, change: GroupChange) -> None:
    """Change what is set of a group; jobs that run go on. Raises HostFault, and then nothing is changed.

    When a job of it was expected to start counts no more: it was not by the devices alone.
    """
    jobs.change_group(change.of(jobs.groups.get(name) or QueueGroup(name=name)))
    for job in list(jobs.live.values()):
        if job.promised is not None and job.submission is not None and job.submission.group == name:
            jobs.change(replace(job, promised=None))
