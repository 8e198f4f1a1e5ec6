"""How far the arrays that live are: which members have begun, which live, and how the others ended."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from gpusched.model.array import Array, number_of_member
from gpusched.model.status import JOB_TERMINAL, ArrayStatus, JobState
from gpusched.storage.job import Job

__all__ = ["ArrayProgress", "ArrayTable"]


class ArrayProgress:
    """One array, with those of its `members` that have begun.

    `live` and `ended` have the ids of members; those before `next` have all begun.
    """

    def __init__(self, array: Array, members: Sequence[tuple[str, JobState]]) -> None:
        self.array = array
        self.live = {job_id for job_id, state in members if state not in JOB_TERMINAL}
        self.ended = Counter(state for _, state in members if state in JOB_TERMINAL)
        self.begun = {number_of_member(job_id) for job_id, _ in members}
        self.next = array.first

    @property
    def least_count(self) -> int:
        """How many members it has at least, by those that have begun."""
        return max((number - self.array.first + 1 for number in self.begun), default=0)

    @property
    def has_begun(self) -> bool:
        """Whether all its members have begun, and no more may come."""
        return not self.array.open and next(self.waiting(), None) is None

    def note(self, member: Job) -> None:
        """Take in how a member is now; one that was stopped before it began ends at once."""
        number = number_of_member(member.id)
        if member.state not in JOB_TERMINAL:
            self.live.add(member.id)
        elif member.id in self.live or number not in self.begun:
            self.live.discard(member.id)
            self.ended[member.state] += 1
        self.begun.add(number)

    def waits(self, number: int) -> bool:
        """Return whether the member of this number has not begun."""
        return self.array.first <= number < self.array.first + self.array.count and number not in self.begun

    def waiting(self) -> Iterator[int]:
        """Yield the numbers of the members that have not begun, in their order."""
        while self.next in self.begun:
            self.next += 1
        last = self.array.first + self.array.count
        return (number for number in range(self.next, last) if number not in self.begun)

    def startable(self, most: int) -> list[int]:
        """Return the numbers of the members that come next, `most` at the most: those that may begin, and one more."""
        at_most = self.array.at_most
        room = most if at_most is None else min(most, max(0, at_most - len(self.live)) + 1)
        return list(islice(self.waiting(), room))

    def status(self) -> ArrayStatus:
        """Return how many members are where."""
        ended = {str(state): self.ended[state] for state in JOB_TERMINAL}
        waiting = self.array.count - len(self.live) - self.ended.total()
        live, at_most = len(self.live), self.array.at_most
        return ArrayStatus(count=self.array.count, waiting=waiting, live=live, at_most=at_most, **ended)


class ArrayTable(dict[str, ArrayProgress]):
    """The arrays that live, by id. A member exists from the moment on in which it is prepared to start.

    `changed`: those that may have come to their end since it was emptied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[str] = set()

    def live(self, job_id: str) -> frozenset[str]:
        """Return the ids of the members that live, of an array that may have ended."""
        return frozenset(self[job_id].live if job_id in self else ())
