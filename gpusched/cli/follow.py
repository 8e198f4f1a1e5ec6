"""Follow a job until it ends: live in a terminal, as lines of text elsewhere; Ctrl-C stops it."""

import signal
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

__all__ = ["follow", "moments", "noting_stop_requests"]

_PAUSE_S: Final = 0.2
_REPORT_EVERY_S: Final = 10.0
_COUNT_EVERY_S: Final = 1.0


@contextmanager
def noting_stop_requests() -> Iterator[list[int]]:
    """Note the signals by which a person asks for an end from here on (Ctrl-C, SIGTERM, SIGHUP); none ends anything."""
    requests: list[int] = []
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: requests.append(number)) for number in caught]
    try:
        yield requests
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


def follow(job: Job, requests: list[int], *, live: bool, quiet: bool, frames: bool = False) -> JobStatus:
    """Show the job until it has ended and return its last status; each signal in `requests` stops it, the second kills.

    `live` draws in place and needs a terminal; `quiet` shows nothing. `frames`: a game is drawn while it is played.
    """
    shown = moments(job, requests, frames=frames)
    if quiet:
        return deque(shown, maxlen=1).pop().status
    return _follow_live(job, shown, requests) if live else _follow_plainly(shown)


def moments(job: Job, requests: list[int], *, frames: bool = False) -> Iterator[Moment]:
    """Yield a moment of the job several times a second, the last one when it has ended; pass stop requests on."""
    passed_on = 0
    for moment in job.moments(_PAUSE_S, frames=frames):
        yield moment
        while passed_on < len(requests) and moment.status.state not in JOB_TERMINAL:
            passed_on += 1
            job.stop(kill=passed_on > 1)


def _follow_live(job: Job, moments: Iterator[Moment], requests: list[int]) -> JobStatus:
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


def _note(status: JobStatus, requests: list[int], logs: Path) -> str:
    if status.state in JOB_TERMINAL:
        return ""
    if len(requests) == 0:
        return f"logs: {logs}   Ctrl-C stops the job"
    return "stopping, the replicas may save their work; Ctrl-C again kills them" if len(requests) == 1 else "killing"


def _follow_plainly(moments: Iterator[Moment]) -> JobStatus:
    news = _News()
    for moment in moments:  # one at least
        for text in news.of(moment):
            print(time.strftime("%H:%M:%S"), printable(text), flush=True)
    return moment.status


class _News:
    """What is new of a job, in lines: counts at most once a second, reports every ten.

    How many replicas are ready is in no line once all were: a restart has lines of its own.
    """

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}
        self._next_count = self._next_report = 0.0
        self._were_ready = False

    def of(self, moment: Moment) -> Iterator[str]:
        """Yield what is new."""
        from gpusched.render.job_format import plain_progress

        status, now = moment.status, time.monotonic()
        if status.note and self._changed("note", status.note):
            yield status.note
        all_ready, count = 0 < ready_count(status) == len(status.replicas), now >= self._next_count
        if not self._were_ready and (count or all_ready):
            ready, self._were_ready = ready_text(status), all_ready
            if ready and self._changed("ready", ready):
                yield ready
        if count or status.state in JOB_TERMINAL:
            self._next_count = now + _COUNT_EVERY_S
            for host in status.joined:
                if self._changed(f"host {host.host}", (host.actors, host.connected)):
                    yield host_text(host, over=False)
        for one in status.replicas:
            if self._changed(one.name, (one.state, one.restarts)):
                reason = f" ({exit_text(one.exit)})" if one.exit else ""
                yield f"{one.name} {one.state}{f' pid {one.pid}' if one.pid else ''}{reason}"
        if moment.reports and now >= self._next_report:
            self._next_report = now + _REPORT_EVERY_S
            yield plain_progress(moment.reports[-1])

    def _changed(self, name: str, value: object) -> bool:
        before, self._shown[name] = self._shown.get(name), value
        return value != before
