"""How far running jobs are, by what their leaders report, and how long they run on at the speed that this shows."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from gpusched.daemon.job import Job
from gpusched.daemon.run_times import RunTimes
from gpusched.execution.directory import JobDirectory
from gpusched.execution.reports import Report, last_progress
from gpusched.model.status import JobState

__all__ = ["WorkDone"]

_READ_EVERY_S: Final = 10.0
_ENOUGH: Final = 0.02
"""The part of the work between two reports from which a speed is taken."""

_SPREAD: Final = (0.8, 0.9, 1.0, 1.15, 1.4)
"""By how much the time that is left may differ from what the speed so far gives. A guess: later speeds vary."""

_LEAST_LEFT_S: Final = 30.0


class _Moment(NamedTuple):
    time: float
    done: float


class _Seen(NamedTuple):
    """The first report of an attempt that was read, and the last; `read` in Unix seconds."""

    attempt: int
    read: float = -math.inf
    first: _Moment | None = None
    last: _Moment | None = None


class WorkDone:
    """The reports of running jobs with the part of the work that is done (see `Progress.report`)."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def read(self, jobs: Iterable[Job], now: float) -> None:
        """Read the reports of those that run, each every 10 s; `now` in Unix seconds."""
        for job in jobs:
            seen = self._seen.get(job.id)
            if seen is None or seen.attempt != job.attempt:
                seen = _Seen(job.attempt)
            if job.state is JobState.RUNNING and abs(now - seen.read) >= _READ_EVERY_S:  # a clock may be set back
                seen = _read(seen, job, now)
            self._seen[job.id] = seen

    def left(self, job: str, now: float) -> RunTimes | None:
        """Return how many seconds a job may run on; None where its reports do not show that."""
        seen = self._seen.get(job)
        if seen is None or seen.first is None or seen.last is None:
            return None
        done, seconds = seen.last.done - seen.first.done, seen.last.time - seen.first.time
        if done < _ENOUGH or seconds <= 0:
            return None
        ends = seen.last.time + (1 - seen.last.done) * seconds / done
        return tuple(max(_LEAST_LEFT_S, ends - now) * by for by in _SPREAD)

    def forget(self, job: str) -> None:
        """Drop what is kept of a job that is over."""
        self._seen.pop(job, None)


def _read(seen: _Seen, job: Job, now: float) -> _Seen:
    """Return what is known with the last report. Work that begins again counts from there."""
    moment = _moment(last_progress(JobDirectory(Path(job.run_dir)).progress), job.started or job.created, now)
    if moment is None:
        return seen._replace(read=now)
    goes_on = seen.last is not None and seen.last.done <= moment.done and seen.last.time <= moment.time
    return _Seen(job.attempt, now, seen.first if goes_on else moment, moment)


def _moment(report: Report | None, since: float, now: float) -> _Moment | None:
    """Return the moment of a report of this attempt; None for one of an earlier attempt, or one of no use."""
    time, done = (report.get("time"), report.get("done")) if report else (None, None)
    if not isinstance(time, int | float) or not isinstance(done, int | float):
        return None
    return _Moment(time, done) if since <= time <= now + _READ_EVERY_S and 0 <= done <= 1 else None
