"""The answer to who asks why a job waits: it comes once the queue has been played on for it, a piece in each turn."""

import math

import msgspec

from gpusched.control.messages import Explained
from gpusched.daemon.arrays import member_that_waits, with_later_members
from gpusched.daemon.state import DaemonState
from gpusched.model.status import JobState
from gpusched.model.why import Why
from gpusched.scheduling.outlook import MOST_AHEAD, Outlook

__all__ = ["Explanation", "work_on_outlooks"]


class Explanation:
    """What is found out of one job, for one who asks."""

    def __init__(self, state: DaemonState, job_id: str) -> None:
        self._state, self._id = state, job_id
        self._outlook: Outlook | None = None
        a_pass_comes = state.queue_changed and state.jobs.problem is None
        self._outdated = state.queue_seen if a_pass_comes else None

    def answer(self, late: bool) -> Explained | None:  # noqa: FBT001 (see PendingReplies.add)
        """Return what is known of the job once all is, or when it is too late for more."""
        job = member_that_waits(self._state, self._id) or self._state.jobs.job(self._id)
        found = Why(job=self._state.shown(job))
        if job.state is not JobState.QUEUED:
            return Explained(why=found)
        if self._outlook is None and not late:
            self._begin()
        outlook = self._outlook
        if not late and (outlook is None or outlook in self._state.outlooks):
            return None
        if outlook is not None:
            if outlook in self._state.outlooks:
                self._state.outlooks.remove(outlook)
            starts = tuple(None if start == math.inf else start for start in outlook.starts)
            place = {"place": outlook.place, "waiting": outlook.waiting, "ahead": outlook.ahead}
            found = msgspec.structs.replace(found, starts=starts, ways=tuple(outlook.ways), **place)
        return Explained(why=found)

    def _begin(self) -> None:
        """Begin to find out, once a pass has seen the job, and the queue as it was when the question came."""
        seen = self._state.queue_seen
        if seen is self._outdated:
            return
        if seen is None:
            return
        seen = with_later_members(self._state, seen, MOST_AHEAD)
        job = next((one for one in seen.waiting if self._id in (one.id, one.array)), None)
        if job is not None:
            self._outlook = Outlook(job, seen, self._state.expectations, self._state.settings)
            self._state.outlooks.append(self._outlook)


def work_on_outlooks(state: DaemonState) -> None:
    """Find out one piece more of what was asked for first."""
    if not state.outlooks:
        return
    over = True
    try:
        over = state.outlooks[0].step()
    finally:  # also where it fails: that is no reason to try for ever
        if over:
            state.outlooks.popleft()
