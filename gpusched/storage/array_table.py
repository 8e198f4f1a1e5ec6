"""How far the arrays that live are: which members have begun, which live, and how the others ended."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from gpusched.model.array import Array, number_of_member
from gpusched.model.status import JOB_TERMINAL, ArrayStatus, JobState
from gpusched.storage.job import Job

__all__ = ["ArrayTable"]

Members = Sequence[tuple[str, JobState]]


class _Progress:
    """One array. `live` and `ended` have the ids of members; those before `next` have all begun."""

    def __init__(self, array: Array, members: Members) -> None:
        self.array = array
        self.live = {job_id for job_id, state in members if state not in JOB_TERMINAL}
        self.ended = Counter(state for _, state in members if state in JOB_TERMINAL)
        self.begun = {number_of_member(job_id) for job_id, _ in members}
        self.next = array.first


class ArrayTable:
    """The arrays that live, by id. A member exists from the moment on in which it is prepared to start.

    `changed`: those that may have come to their end since it was emptied.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, _Progress] = {}
        self.changed: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._arrays))

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._arrays

    def add(self, job_id: str, array: Array, members: Members = ()) -> None:
        """Take in an array with those of its members that have begun."""
        self._arrays[job_id] = _Progress(array, members)

    def change(self, job_id: str, array: Array) -> None:
        """Take in that an array has more members than before, or is no longer open."""
        self._arrays[job_id].array = array

    def least_count(self, job_id: str) -> int:
        """Return how many members it has at least, by those that have begun."""
        progress = self._arrays[job_id]
        return max((number - progress.array.first + 1 for number in progress.begun), default=0)

    def forget(self, job_id: str) -> None:
        """Drop an array that is over."""
        self._arrays.pop(job_id, None)
        self.changed.discard(job_id)

    def note(self, member: Job) -> None:
        """Take in how a member is now."""
        progress = self._arrays.get(member.array or "")
        if progress is None:
            return
        progress.begun.add(number_of_member(member.id))
        if member.state in JOB_TERMINAL:
            if member.id in progress.live:
                progress.live.discard(member.id)
                progress.ended[member.state] += 1
        else:
            progress.live.add(member.id)

    def waiting(self, job_id: str) -> Iterator[int]:
        """Yield the numbers of the members that have not begun, in their order."""
        progress = self._arrays[job_id]
        while progress.next in progress.begun:
            progress.next += 1
        last = progress.array.first + progress.array.count
        return (number for number in range(progress.next, last) if number not in progress.begun)

    def live(self, job_id: str) -> frozenset[str]:
        """Return the ids of the members that live."""
        progress = self._arrays.get(job_id)
        return frozenset(progress.live if progress else ())

    def startable(self, job_id: str, most: int) -> list[int]:
        """Return the numbers of the members that may begin next, `most` at the most."""
        progress = self._arrays[job_id]
        at_most = progress.array.at_most
        room = most if at_most is None else min(most, at_most - len(progress.live))
        return list(islice(self.waiting(job_id), max(0, room)))

    def has_begun(self, job_id: str) -> bool:
        """Return whether all its members have begun, and no more may come."""
        return not self.is_open(job_id) and next(self.waiting(job_id), None) is None

    def is_open(self, job_id: str) -> bool:
        """Return whether more members may come."""
        return self._arrays[job_id].array.open

    def status(self, job_id: str) -> ArrayStatus:
        """Return how many members are where."""
        progress = self._arrays[job_id]
        ended = {str(state): progress.ended[state] for state in JOB_TERMINAL}
        waiting = progress.array.count - len(progress.live) - progress.ended.total()
        return ArrayStatus(
            count=progress.array.count,
            waiting=waiting,
            live=len(progress.live),
            at_most=progress.array.at_most,
            **ended,
        )
