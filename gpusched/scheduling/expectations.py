"""How long the daemon's jobs are expected to run, by those that ended before."""

import logging
from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from gpusched.errors import HostFault
from gpusched.model.status import JobState
from gpusched.scheduling.decision import Running
from gpusched.scheduling.forecast import drawn
from gpusched.scheduling.run_times import RunTimes, RunTimesSeen, kinds_of, left_after
from gpusched.scheduling.work_done import WorkDone
from gpusched.storage.job import Job

__all__ = ["Expectations"]

_LOG: Final = logging.getLogger(__name__)
_REMEMBERED: Final = 1000
"""Number of jobs that ended last whose run times are read from the store, and again as many with members of arrays."""


class Jobs(Protocol):
    """The jobs of a daemon, as `JobTable` has them; `live` are the ids of those that wait or run."""

    @property
    def live(self) -> Container[str]:
        """Return the ids of the jobs that wait or run."""

    def ended(self, limit: int, /, *, members: bool = False) -> Sequence[Job]:
        """Return the latest jobs that ended; `members`: those of arrays, too. Raises HostFault."""


class Expectations:
    """The run times of the latest jobs, which are read from the store at once.

    Where the store cannot be read, nothing is known of them, and the queue goes on.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._seen = _read(jobs)
        self._kinds: dict[str, tuple[str, ...]] = {}
        self._work = WorkDone()

    def read_reports(self, jobs: Iterable[Job], now: float) -> None:
        """Read how far the running of these jobs are, where that is due; `now` in Unix seconds."""
        self._work.read(jobs, now)

    def expected(self, job: Job) -> RunTimes:
        """Return how long a job may run, from its start on."""
        if job.submission is None:
            return self._seen.expected(())
        kinds = self._kinds.get(job.id)
        if kinds is None:
            kinds = kinds_of(job.submission, job.array)
            if job.id in self._jobs.live:
                self._kinds[job.id] = kinds
        return self._seen.expected(kinds, job.submission.time_limit_s)

    def running(self, job: Job, now: float) -> Running:
        """Return a job that has been started as the scheduler sees it; `now` in Unix seconds."""
        limit = job.submission.time_limit_s if job.submission else None
        ends_at = None if limit is None or job.started is None else job.started + limit
        draw, reported = partial(drawn, job.id), self._work.left(job, now)
        age_s = now - (job.started or now)
        left = left_after(self.expected(job), age_s, draw) if reported is None else draw(reported)
        ends = tuple([now + each for each in left])
        if ends_at is not None:
            ends = tuple([min(each, max(now, ends_at)) for each in ends])
        group = job.submission.group if job.submission else None
        return Running(id=job.id, run_dir=job.run_dir, ends_at=ends_at, ends=ends, group=group, array=job.array)

    def note_end(self, job: Job) -> None:
        """Note how long a job ran that has ended."""
        _add(self._seen, job)

    def forget(self, job_id: str) -> None:
        """Drop what is kept of a job that is over."""
        self._kinds.pop(job_id, None)
        self._work.forget(job_id)


def _read(jobs: Jobs) -> RunTimesSeen:
    seen = RunTimesSeen()
    try:
        ended = {job.id: job for members in (False, True) for job in jobs.ended(_REMEMBERED, members=members)}
    except HostFault as error:
        _LOG.warning("how long earlier jobs ran is not known: %s", error)
        return seen
    for job in sorted(ended.values(), key=lambda job: job.ended or 0.0):
        _add(seen, job)
    return seen


def _add(seen: RunTimesSeen, job: Job) -> None:
    """Note how long a job ran that succeeded: one that crashed, was stopped or lost might have run for longer."""
    if job.state is not JobState.SUCCEEDED or job.submission is None or job.is_array:
        return
    if job.started is not None and job.ended is not None:
        seen.add(kinds_of(job.submission, job.array), max(0.0, job.ended - job.started))
