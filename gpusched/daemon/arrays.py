"""Arrays in the queue: their members are offered to the scheduler when they may start, and made when they do."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gpusched.calls import calls_of
from gpusched.control.messages import Extend, Resume
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault, UsageError
from gpusched.execution.directory import JobDirectory, own_directory
from gpusched.execution.start import has_exited
from gpusched.linux.files import remove_tree
from gpusched.model.array import array_of, member_id, member_submission, number_of_member
from gpusched.model.job import Submission
from gpusched.model.status import JOB_TERMINAL, JobState
from gpusched.probe.reading import Reading
from gpusched.scheduling.outlook import QueueSnapshot
from gpusched.scheduling.scheduler import queue_order
from gpusched.storage.array_table import ArrayProgress
from gpusched.storage.job import Job
from gpusched.storage.job_status import status_of

__all__ = [
    "at_most",
    "extend",
    "finish_arrays",
    "made",
    "may_start",
    "member_that_waits",
    "offered",
    "owner_exited",
    "resume",
    "take_up_held",
    "with_later_members",
]

_AGAIN: Final = (JobState.FAILED, JobState.CANCELLED, JobState.LOST)
_NOT_PRELOADED: Final = "nothing is preloaded: "
_ONE_AGE_S: Final = 60.0  # members that come to an open array within it count as of one age: ages are written down
_PLACES: Final = 1e-6
"""Seconds by which members seem to have come after each other, so that they start in the order of their numbers."""


def may_start(state: DaemonState, job: Job) -> bool:
    """Return whether something of a queued job waits to start: of an array, a member that has not begun."""
    if not job.is_array:
        return True
    return not job.stop_asked and not owner_exited(job) and next(state.jobs.arrays[job.id].waiting(), None) is not None


def member_that_waits(state: DaemonState, job_id: str) -> Job | None:
    """Return a member of an array that has not begun, as it is to be queued; None where the id means none."""
    array, number = array_of(job_id) or "", number_of_member(job_id)
    progress = state.jobs.arrays.get(array)
    if progress is None or state.jobs.live[array].stop_asked or not progress.waits(number):
        return None
    return _member(state.jobs.live[array], number)


def owner_exited(job: Job) -> bool:
    """Return whether the process is gone that an open array gets its members of."""
    return job.submission is not None and has_exited(job.submission.owner)


def offered(state: DaemonState, waiting: Iterable[Job], blocked: dict[str, str], most: int) -> Iterator[Job]:
    """Yield the jobs that the scheduler decides on: for an array those of its members that come next.

    An array that may start none is itself among the `blocked`. Of all arrays together `most` members are offered. What
    was promised to an array was so to the first of them.
    """
    waiting = list(waiting)
    each = max(1, most // max(1, sum(job.is_array and job.id not in blocked for job in waiting)))
    for job in waiting:
        if job.is_array and job.id not in blocked:
            for place, number in enumerate(state.jobs.arrays[job.id].startable(each)):
                yield replace(_member(job, number), promised=None if place else job.promised)
        else:
            yield job


def at_most(state: DaemonState) -> dict[str, int]:
    """Return of each array that has such a bound how many of its members may run at the same time."""
    bounds = {name: progress.array.at_most for name, progress in state.jobs.arrays.items()}
    return {name: most for name, most in bounds.items() if most is not None}


def with_later_members(state: DaemonState, seen: QueueSnapshot, most: int) -> QueueSnapshot:
    """Return the queue as it was seen, with `most` members of arrays, the first ones, and how many more each has."""
    waiting, more, listed = list(seen.waiting), dict[str, int](), defaultdict[str, set[int]](set)
    for job in sorted(waiting, key=queue_order):
        if job.array is not None and job.array in state.jobs.arrays:
            listed[job.array].add(number_of_member(job.id))
    for array, numbers in listed.items():
        progress, most = state.jobs.arrays[array], max(0, most - len(numbers))
        later = list(islice((number for number in progress.waiting() if number not in numbers), most))
        waiting += (_member(state.jobs.live[array], number) for number in later)
        more[array] = progress.status().waiting - len(later) - sum(map(progress.waits, numbers))
        most -= len(later)
    return seen._replace(waiting=tuple(waiting), more=more)


def made(state: DaemonState, member: Job) -> Job:
    """Return a member that is about to start, with a directory, which an earlier run of it may have left.

    Raises HostFault.
    """
    directory = JobDirectory(Path(member.run_dir))
    own_directory(directory)
    attempt = 0
    with suppress(HostFault):  # it cannot be read: then it is as new
        status = directory.read_status()
        attempt = 0 if status is None else status.attempt + 1
    array = state.jobs.live[member.array or ""]
    if array.started is None:
        state.jobs.change(replace(array, started=time.time()))
    return replace(member, attempt=attempt, promised=None)


def finish_arrays(state: DaemonState) -> None:
    """Note the end of arrays whose members have all ended, or of which those that live were to be the last."""
    for job_id in tuple(state.jobs.arrays.changed):
        if state.contain(job_id, "the end", partial(_finish, state, job_id)):  # else it is tried again in the next turn
            state.jobs.arrays.changed.discard(job_id)


def _finish(state: DaemonState, job_id: str) -> None:
    job, progress = state.jobs.live[job_id], state.jobs.arrays[job_id]
    found = progress.status()
    more = found.waiting or progress.array.open
    if found.live or (more and not job.stop_asked):
        return
    over = replace(
        job,
        state=_end(job, found.failed + found.lost, found.cancelled),
        ended=time.time(),
        members=found,
        held=False,
    )
    bad = {name: count for name in _AGAIN if (count := getattr(found, name))}
    message = ", ".join(f"{count} {name}" for name, count in bad.items()) or None
    if over.message is None or over.message.startswith(_NOT_PRELOADED):
        over = replace(over, message="; ".join(filter(None, (message, over.message))) or None)
    if job.submission is not None and job.submission.owner is not None:  # which may have been killed
        Reading(partial(remove_tree, calls_of(Path(job.run_dir))), "delete-calls")
    state.jobs.change(replace(over, last=status_of(over)))
    state.forget(job_id)


def take_up_held(state: DaemonState) -> None:
    """Have those members spawned next whose array has imported what they were held for, or cannot."""
    held = state.starts.released()
    state.prepared += held
    if held:
        state.changed()  # those behind them were not prepared meanwhile
    for array, why in state.starts.forks.troubles():
        job = state.jobs.live.get(array)
        if job is not None and (job.message is None or job.message.startswith(_NOT_PRELOADED)):
            state.jobs.change(replace(job, message=None if why is None else f"{_NOT_PRELOADED}{why}"))


def resume(state: DaemonState, job: Job, asked: Resume, named: Callable[[Submission, str], Submission]) -> Job:
    """Queue an array again that has ended: of its members those that did not succeed, or never began, run.

    `named` gives it another name where a living job has its own.

    Raises UsageError where there is nothing to be resumed, and HostFault.
    """
    if not job.is_array or job.submission is None or job.submission.array is None:
        raise UsageError(f"{job.id} is no array", "see gpusched sweep --help; queue a job again with gpusched rerun")
    if job.submission.owner is not None:
        raise UsageError(f"{job.id} has the calls of an Executor", "call them again")
    if job.state not in JOB_TERMINAL:
        raise UsageError(f"{job.id} has not ended", f"wait for it: gpusched wait {job.id}")
    if state.jobs.is_unsaved(job.id):
        raise HostFault(f"{job.id}: its end is not saved yet", "try again")
    ends = [ended for _, ended in state.jobs.store.members(job.id)]
    if len(ends) == job.submission.array.count and not any(ended in _AGAIN for ended in ends):
        raise UsageError(f"all members of {job.id} have succeeded", "queue the same again: gpusched rerun")
    state.jobs.forget_members(job.id, _AGAIN)
    submission = replace(
        job.submission,
        environ=asked.environ,
        attributes=asked.attributes,
        token=asked.token,
        hold=False,
        at=None,
        after=(),
        after_any=(),
    )
    waits = replace(
        job,
        submission=named(submission, job.id),
        created=round(time.time(), 3),
        extended=(),
        state=JobState.QUEUED,
        stop_asked=False,
        started=None,
        ended=None,
        message=None,
        last=None,
        members=None,
        promised=None,
    )
    state.jobs.change(waits)
    state.changed()
    return waits


def extend(state: DaemonState, job: Job, asked: Extend) -> None:
    """Give an open array more members, or close it. Raises UsageError for an array that is not open."""
    array = job.submission.array if job.submission else None
    if job.submission is None or array is None or not array.open or job.id not in state.jobs.arrays:
        raise UsageError(f"{job.id} takes no more members", "queue another array")
    least = state.jobs.arrays[job.id].least_count if asked.close else array.count
    ages = _ages(job, state.jobs.arrays[job.id], time.time())
    array = replace(array, count=max(least, asked.count), open=not asked.close)
    state.jobs.change(replace(job, submission=replace(job.submission, array=array), extended=ages))
    state.changed()


def _ages(job: Job, progress: ArrayProgress, now: float) -> tuple[tuple[int, float], ...]:
    """Return since when members that come to an open array at `now` (Unix seconds), and those before, are queued.

    They have their own age, not that of the array: it would stand before all that was queued since it began, for ever.
    """
    first = next(progress.waiting(), None)
    next_number = progress.array.first + progress.array.count
    later = [*job.extended[1:], (next_number, now)]
    ages = [one for one, after in zip(job.extended, later, strict=False) if first is not None and first < after[0]]
    if now - (ages[-1][1] if ages else job.created) >= _ONE_AGE_S:
        ages.append((next_number, round(now, 3)))
    return tuple(ages)


def _member(job: Job, number: int) -> Job:
    """Return a member of an array that has not begun."""
    if job.submission is None or job.submission.array is None:
        raise AssertionError(f"{job.id} is no array")
    name = member_id(job.id, number)
    return Job(
        id=name,
        run_dir=str(Path(job.run_dir).with_name(name)),
        created=next((age for first, age in reversed(job.extended) if first <= number), job.created) + number * _PLACES,
        submission=member_submission(job.submission, job.submission.array, number),
        array=job.id,
    )


def _end(job: Job, failed: int, cancelled: int) -> JobState:
    if job.stop_asked or cancelled:
        return JobState.CANCELLED
    return JobState.FAILED if failed else JobState.SUCCEEDED
