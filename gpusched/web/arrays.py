"""Arrays that have ended: a status has their members of the last hour alone, so the page asks for the whole array."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from gpusched.api.queue import FoundJobs, find_jobs
from gpusched.errors import GpuschedError
from gpusched.model.array import array_of
from gpusched.model.status import JOB_TERMINAL, JobStatus

__all__ = ["EndedArrays"]

_AGAIN_S: Final = 10.0


class EndedArrays:
    """Asks for each array once, after it has ended; where there is no answer, again after ten seconds."""

    def __init__(
        self, find: Callable[[str], FoundJobs] = find_jobs, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find, self._clock = find, clock
        self._known: dict[str, JobStatus] = {}
        self._due = 0.0

    def of(self, jobs: Iterable[JobStatus], *, ask: bool) -> Mapping[str, JobStatus]:
        """Return by id those arrays of which `jobs` has members only. One that is not known is left out.

        `ask`: the daemon answers. One that hangs would keep all pages waiting.
        """
        listed = list(jobs)
        live = {job.id for job in listed if job.array is not None}
        wanted = {array for job in listed if (array := array_of(job.id)) is not None} - live
        self._known = {array: job for array, job in self._known.items() if array in wanted}
        missing = wanted - self._known.keys()
        if ask and missing and self._clock() >= self._due:
            for array in missing:
                with suppress(GpuschedError):
                    self._known |= {job.id: job for job in self._find(array).jobs if job.state in JOB_TERMINAL}
            self._due = self._clock() + _AGAIN_S if missing - self._known.keys() else 0.0
        return self._known
