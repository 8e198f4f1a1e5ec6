"""Follow a job until it ends: live in a terminal, as lines of text elsewhere; Ctrl-C stops it."""

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpusched.api.handle import Job, Moment
from gpusched.model.status import JOB_TERMINAL, JobStatus, exit_text
from gpusched.render.job_format import host_text, ready_count, ready_text
from gpusched.render.text import printable

__all__ = ["StopRequests", "counting_stop_requests", "follow", "moments"]

_PAUSE_S: Final = 0.2
_REPORT_EVERY_S: Final = 10.0
_COUNT_EVERY_S: Final = 1.0


class StopRequests:
    """How often the person has asked for an end, by Ctrl-C, SIGTERM or SIGHUP. The signal handler only counts."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, _number: int, _frame: object) -> None:
        """Count one; this is a signal handler."""
        self.count += 1


@contextmanager
def counting_stop_requests() -> Iterator[StopRequests]:
    """Count requests to stop from here on, rather than end at the first."""
    requests = StopRequests()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, requests.handle) for number in caught]
    try:
        yield requests
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


def follow(job: Job, requests: StopRequests, *, live: bool, quiet: bool, frames: bool = False) -> JobStatus:
    """Show the job until it has ended and return its last status; each of `requests` stops it, the second kills.

    `live` draws in place and needs a terminal; `quiet` shows nothing. `frames`: a game is drawn while it is played.
    """
    shown = moments(job, requests, frames=frames)
    if quiet:
        return deque(shown, maxlen=1).pop().status
    return _follow_live(job, shown, requests) if live else _follow_plainly(shown)


def moments(job: Job, requests: StopRequests, *, frames: bool = False) -> Iterator[Moment]:
    """Yield a moment of the job several times a second, the last one when it has ended; pass stop requests on."""
    passed_on = 0
    for moment in job.moments(_PAUSE_S, frames=frames):
        yield moment
        while passed_on < requests.count and moment.status.state not in JOB_TERMINAL:
            passed_on += 1
            job.stop(kill=passed_on > 1)


def _follow_live(job: Job, moments: Iterator[Moment], requests: StopRequests) -> JobStatus:
    from rich.console import Console
    from rich.live import Live

    from gpusched.render.chart import Curve
    from gpusched.render.job_format import number
    from gpusched.render.launch import Scene, draw_job

    console = Console(highlight=False)
    unicode = console.encoding.lower().startswith("utf")
    curve = Curve()
    latest: Mapping[str, object] = {}
    with Live(console=console, auto_refresh=False, screen=False, vertical_overflow="crop") as view:
        for moment in moments:  # one at least
            for latest in moment.reports:
                at, score = number(latest.get("time")), number(latest.get("score"))
                if at is not None and score is not None:
                    curve.add(at, score)
            scene = Scene(
                job=moment.status,
                latest=latest,
                points=curve.points,
                now=time.time(),
                frame=moment.frame,
                note=_note(moment.status, requests, job.run_dir / "logs"),
                unicode=unicode,
            )
            view.update(draw_job(scene, console.width, console.height), refresh=True)
    return moment.status


def _note(status: JobStatus, requests: StopRequests, logs: Path) -> str:
    if status.state in JOB_TERMINAL:
        return ""
    if requests.count == 0:
        return f"logs: {logs}   Ctrl-C stops the job"
    return "stopping, the replicas may save their work; Ctrl-C again kills them" if requests.count == 1 else "killing"


def _follow_plainly(moments: Iterator[Moment]) -> JobStatus:
    from gpusched.render.job_format import plain_progress

    seen: dict[str, tuple[object, int]] = {}
    reported = 0.0
    start, hosts = _Start(), _Hosts()
    for moment in moments:  # one at least
        status = moment.status
        for text in (*start.news(status), *hosts.news(status)):
            _log(text)
        for replica in status.replicas:
            if seen.get(replica.name) != (replica.state, replica.restarts):
                seen[replica.name] = (replica.state, replica.restarts)
                reason = f" ({exit_text(replica.exit)})" if replica.exit else ""
                _log(f"{replica.name} {replica.state}{f' pid {replica.pid}' if replica.pid else ''}{reason}")
        if moment.reports and time.monotonic() - reported >= _REPORT_EVERY_S:
            reported = time.monotonic()
            _log(plain_progress(moment.reports[-1]))
    return moment.status


class _Start:
    """How far a job's start is, in lines: what it does before it starts anything, then how many replicas are ready.

    The number comes at most once a second, and nothing more once all were ready: a restart has lines of its own.
    """

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._next_count = 0.0
        self._over = False

    def news(self, status: JobStatus) -> list[str]:
        """Return what is new."""
        texts = [status.note or ""]
        now = time.monotonic()
        all_ready = 0 < ready_count(status) == len(status.replicas)
        if not self._over and (all_ready or now >= self._next_count):
            texts.append(ready_text(status))
            self._next_count, self._over = now + _COUNT_EVERY_S, all_ready
        new = [text for text in texts if text and text not in self._shown]
        self._shown.update(new)
        return new


class _Hosts:
    """How many actors of each host that joined are there, in a line when that changes, at most once a second."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[int, int]] = {}
        self._next = 0.0

    def news(self, status: JobStatus) -> list[str]:
        """Return what is new."""
        now = time.monotonic()
        if now < self._next and status.state not in JOB_TERMINAL:
            return []
        self._next = now + _COUNT_EVERY_S
        changed = [one for one in status.joined if self._shown.get(one.host) != (one.actors, one.connected)]
        self._shown |= {one.host: (one.actors, one.connected) for one in changed}
        return [host_text(one, over=False) for one in changed]


def _log(text: str) -> None:
    print(time.strftime("%H:%M:%S"), printable(text))
    sys.stdout.flush()
