"""The logs of the members of an array that have begun, each with its number as its name. See Job.logs."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.api.queue import find_jobs
from gpusched.api.selecting import linked, selected
from gpusched.errors import NotFound
from gpusched.execution.daemon_link import Link, in_parts
from gpusched.execution.job_logs import JobLogs, LogPiece
from gpusched.model.array import number_of_member
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.settings import queue_settings

__all__ = ["follow_members", "read_members"]

_POLL_S: Final = 0.3
_PAUSE: Final = 10
"""How much longer than the daemon's answers the pause after them is, so that it does not work for this alone."""
_AT_ONCE: Final = 100


def read_members(array: str, logs: JobLogs) -> Iterator[LogPiece]:
    """Return the pieces of each member, one after the other. `logs`: what is wanted of each."""
    try:
        members = find_jobs(f"{array}[]").jobs
    except NotFound:  # none has begun, or all were removed
        members = ()
    return _pieces_of_all(members, logs)


def _pieces_of_all(members: Sequence[JobStatus], logs: JobLogs) -> Iterator[LogPiece]:
    width = _width([member.id for member in members])
    for member in members:
        yield from _pieces(member, logs.for_another(), width, last=True)


def follow_members(array: str, logs: JobLogs) -> Iterator[LogPiece]:
    """Yield the pieces of all members as they come, until the array has ended: what begins later is shown whole.

    Only the daemon knows which have begun and whether more will: it is started if there is none, and waited for. A
    member that has ended is read once and then forgotten, or each look at 10,000 would be as long as the first.
    """
    reads, over = dict[str, tuple[JobLogs, int]](), set[str]()
    with linked(queue_settings(os.environ), (array,)) as link:
        while True:
            began = time.monotonic()
            ended = link.jobs((array,))[0].state in JOB_TERMINAL  # before its members are read, or some could be missed
            left = [one for one in selected(link, (f"{array}[]",)) if one not in over]
            took, width = time.monotonic() - began, _width(left)
            for part in in_parts(left, _AT_ONCE):
                for member in _still_there(link, array, part):
                    of_it, wide = reads.setdefault(member.id, (logs.for_another(), width))
                    last = member.state in JOB_TERMINAL
                    yield from _pieces(member, of_it, wide, last=last)
                    if last:
                        over.add(member.id)
                        del reads[member.id]
            if ended:
                return
            logs = logs.for_another(whole=True)
            time.sleep(max(_POLL_S, _PAUSE * took))


def _still_there(link: Link, array: str, ids: tuple[str, ...]) -> list[JobStatus]:
    """Return these members in the order of their numbers, without those that were removed meanwhile."""
    try:
        found = link.jobs(ids)
    except NotFound:
        there = set(selected(link, (f"{array}[]",)))
        found = link.jobs(kept) if (kept := [one for one in ids if one in there]) else ()
    return sorted(found, key=lambda member: number_of_member(member.id))


def _pieces(member: JobStatus, logs: JobLogs, width: int, *, last: bool) -> Iterator[LogPiece]:
    logs.add(member, waits=True)
    number = f"[{number_of_member(member.id)}]"
    for replica, inner, piece in logs.pieces(last=last):
        yield (f"{number:<{width}} {replica}", width + 1 + inner, piece) if inner else (number, width, piece)


def _width(ids: Sequence[str]) -> int:
    return max((len(f"[{number_of_member(one)}]") for one in ids), default=0)
