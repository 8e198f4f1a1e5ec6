"""How far running jobs are, by what their leaders report, and how long they run on at the speed that this shows."""

import math
from collections.abc import Iterable
from heapq import nsmallest
from pathlib import Path
from typing import Final, NamedTuple

from gpusched.execution.directory import JobDirectory
from gpusched.execution.reports import Report, first_reports, last_reports
from gpusched.model.status import JobState
from gpusched.scheduling.run_times import LEAST_LEFT_S, RunTimes, outlived
from gpusched.storage.job import Job

__all__ = ["WorkDone"]

_READ_EVERY_S: Final = 10.0
_MOST_READ: Final = 20
"""Jobs that are read at a time: a report takes a tenth of a millisecond."""

_ENOUGH: Final = 0.1
"""The part of the work that must have been seen: before that, how long earlier jobs ran is the better guess."""

_MOST_KEPT: Final = 64
_SPREAD: Final = (0.8, 0.9, 1.0, 1.15, 1.4)
"""By how much the time that is left may differ from what the speed so far gives. A guess: later speeds vary."""


class _Moment(NamedTuple):
    time: float
    done: float


class _Seen(NamedTuple):
    """What an attempt has reported, as far as it was read; `read` in Unix seconds."""

    attempt: int
    read: float = -math.inf
    moments: tuple[_Moment, ...] = ()


class WorkDone:
    """The reports of running jobs with the part of the work that is done (see `Progress.report`)."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def read(self, jobs: Iterable[Job], now: float) -> None:
        """Read the reports of jobs that run, each every 10 s, and not too many at a time; `now` in Unix seconds."""
        running = [job for job in jobs if job.state is JobState.RUNNING]
        due = [job for job in running if abs(now - self._of(job).read) >= _READ_EVERY_S]  # a clock may be set back
        for job in nsmallest(_MOST_READ, due, key=lambda job: self._of(job).read):
            seen, path = self._of(job), JobDirectory(Path(job.run_dir)).progress
            reports = last_reports(path) if seen.moments else [*first_reports(path), *last_reports(path)]
            moments = _moments(reports, job.started or job.created, now)
            self._seen[job.id] = _Seen(job.attempt, now, _onward((*seen.moments, *moments)))

    def left(self, job: Job, now: float) -> RunTimes | None:
        """Return how many seconds a job may run on; None where its reports do not show that.

        The speed is that of the later half of what was seen. One that has outlived this by some time is expected to
        run for another tenth to twice that time.
        """
        moments = self._of(job).moments if job.state is JobState.RUNNING else ()
        if not moments or moments[-1].done - moments[0].done < _ENOUGH:
            return None
        last, middle = moments[-1], (moments[0].time + moments[-1].time) / 2
        since = next(one for one in reversed(moments) if one.time <= middle)
        if last.done <= since.done:
            return None
        ends = last.time + (1 - last.done) * (last.time - since.time) / (last.done - since.done)
        if now <= ends:
            return tuple(max(LEAST_LEFT_S, ends - now) * by for by in _SPREAD)
        return outlived(now - ends)

    def forget(self, job: str) -> None:
        """Drop what is kept of a job that is over."""
        self._seen.pop(job, None)

    def _of(self, job: Job) -> _Seen:
        seen = self._seen.get(job.id)
        return seen if seen is not None and seen.attempt == job.attempt else _Seen(job.attempt)


def _onward(moments: tuple[_Moment, ...]) -> tuple[_Moment, ...]:
    """Return the moments since the work last began again; of many every second one."""
    rising: list[_Moment] = []
    for one in moments:
        if rising and one.time >= rising[-1].time and one.done < rising[-1].done:
            rising.clear()
        if not rising or one.time > rising[-1].time:
            rising.append(one)
    return tuple(rising if len(rising) <= _MOST_KEPT else [*rising[:-1:2], rising[-1]])


def _moments(reports: Iterable[Report], since: float, now: float) -> list[_Moment]:
    """Return what the reports of this attempt show of the work; those of earlier ones, and of no use, are left out."""
    found = [_moment(report) for report in reports]
    return [one for one in found if one and since <= one.time <= now + _READ_EVERY_S and 0 <= one.done <= 1]


def _moment(report: Report) -> _Moment | None:
    """Return when a report was made and what part of the work was done: `done`, or `step` of its `steps`."""
    time, done = _number(report.get("time")), _number(report.get("done"))
    if done is None:
        step, steps = _number(report.get("step")), _number(report.get("steps"))
        done = None if step is None or not steps else step / steps
    return None if time is None or done is None else _Moment(time, done)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
