"""What ended long ago is removed by itself, as far as the configuration wants it: jobs (keep_jobs), logs (keep_logs).

Some at a time, so that the daemon's loop goes on: what is removed is moved away, and a thread deletes it. What the
jobs themselves wrote is kept, in results/JOB.
"""

import logging
import time
from functools import partial
from typing import Final

from gpusched.control.messages import Removed
from gpusched.daemon.removal import remove, remove_logs
from gpusched.daemon.state import DaemonState
from gpusched.errors import HostFault
from gpusched.execution.removed import delete_removed
from gpusched.probe.reading import Reading
from gpusched.storage.store import FIRST_END, EndPosition

__all__ = ["Housekeeping"]

_LOG: Final = logging.getLogger(__name__)
_EVERY_S: Final = 300.0
_PAUSE_S: Final = 0.5
_JOBS_A_STEP: Final = 8
_LOGS_A_STEP: Final = 64
_LONGEST_S: Final = 0.01
_EVER: Final = float("inf")
_PROBLEM: Final = "housekeeping"


class Housekeeping:
    """Removes, step by step, what is too old by the settings; nothing where they keep all.

    There is a round every five minutes: of jobs from the oldest end on, of logs from where the last round ended.
    """

    def __init__(self, state: DaemonState) -> None:
        self._state, settings = state, state.settings
        self._keeps_all = settings.keep_jobs == (None, None) and settings.keep_logs_s is None
        self._jobs_after = self._logs_after = FIRST_END
        self._next = 0.0
        self._undeleted = True  # by a daemon before, perhaps
        self._deletion: Reading[tuple[str, ...]] | None = None

    def step(self, now: float) -> None:
        """Remove some, if it is time. Where the store cannot be read or written, the next round tries it again."""
        if self._keeps_all or now < self._next:
            return
        self._next = now + _EVERY_S
        try:
            more = [self._remove_logs(), self._remove_jobs(), self._delete()]
        except HostFault as error:
            self._state.problems[_PROBLEM] = f"nothing old is removed: {error}"
            return
        self._state.problems.pop(_PROBLEM, None)
        if any(more):
            self._next = now + _PAUSE_S

    def _remove_jobs(self) -> bool:
        """Remove some jobs; return whether there may be more."""
        until = self._last_not_kept()
        found = [] if until is None else self._state.jobs.store.ended_until(until, self._jobs_after, _JOBS_A_STEP)
        if not found:
            self._jobs_after = FIRST_END  # those that stayed are tried again
            return False
        newest_first = tuple(job_id for job_id, _ in reversed(found))  # of each workload one number is noted, not all
        arrays = self._remove(newest_first).arrays  # whose members go before them
        members = [one for array in arrays for one, _ in self._state.jobs.store.members(array, _JOBS_A_STEP)]
        if not members or not self._remove(tuple(members)).ids:
            self._jobs_after = found[-1][1]
        return True

    def _remove(self, ids: tuple[str, ...]) -> Removed:
        """Remove jobs, and return what became of them."""
        done = remove(self._state, ids, keep_results=True)
        if done.ids:
            self._undeleted = True
            _LOG.info("removed %d jobs, as keep_jobs wants it: %s", len(done.ids), ", ".join(done.ids))
        for job_id, why in done.kept.items():
            _LOG.debug("%s stays: %s", job_id, why)
        return done

    def _last_not_kept(self) -> EndPosition | None:
        """Return the end of the youngest job that is not to be kept; None: all are."""
        keep = self._state.settings.keep_jobs
        if keep.most is not None:
            return self._state.jobs.store.end_before(keep.most)
        return None if keep.older_s is None else (time.time() - keep.older_s, _EVER, 0)

    def _remove_logs(self) -> bool:
        """Remove the logs of some jobs; return whether there may be more."""
        keep_s = self._state.settings.keep_logs_s
        if keep_s is None:
            return False
        until, deadline = (time.time() - keep_s, _EVER, 0), time.monotonic() + _LONGEST_S
        removed: list[str] = []
        found = self._state.jobs.store.ended_until(until, self._logs_after, _LOGS_A_STEP, members=True)
        for job_id, self._logs_after in found:
            if remove_logs(self._state, job_id):
                removed.append(job_id)
            if time.monotonic() > deadline:
                break
        if removed:
            self._undeleted = True
            _LOG.info("removed the logs of %d jobs, as keep_logs wants it: %s", len(removed), ", ".join(removed))
        return bool(found)

    def _delete(self) -> bool:
        """Have a thread delete what was moved away; return whether it is to be seen to again."""
        if self._deletion is not None and not self._deletion.wait(0):
            return True
        self._deletion = None
        if not self._undeleted:
            return False
        self._undeleted = False
        self._deletion = Reading(partial(delete_removed, self._state.settings), "delete-removed")
        return True
