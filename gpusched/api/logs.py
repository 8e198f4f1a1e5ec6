"""What a job's processes write: as lines, or as it is into files; to its end, if it is followed. See Job.logs."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from gpusched.api.validation import require_type
from gpusched.errors import NotFound
from gpusched.execution.job_logs import JobLogs, require_log
from gpusched.execution.read_jobs import read_job
from gpusched.model.status import JOB_TERMINAL, JobStatus

if TYPE_CHECKING:
    from gpusched.api.handle import Job
    from gpusched.execution.log_tail import Sink

__all__ = ["copy_logs", "log_lines"]

_POLL_S: Final = 0.1
_QUEUE_POLL_S: Final = 0.3


def log_lines(job: "Job", replica: str | None, lines: int | None, *, follow: bool) -> Iterator[str]:
    """Yield the lines as Job.logs does. Raises at once for a wrong argument, and for a replica that there is not."""
    _require_types(replica, lines)
    logs = JobLogs(replica, lines, _Lines)
    logs.add(job.status(), waits=follow)
    return _lines(logs, _rounds(job, follow=follow))


def copy_logs(
    job: "Job", sink_of: "Callable[[str, int], Sink]", replica: str | None, lines: int | None, *, follow: bool
) -> JobStatus:
    """Write what the processes write as Job.copy_logs does, and return the status at last."""
    _require_types(replica, lines)
    logs = JobLogs(replica, lines, sink_of)
    for status, over in _rounds(job, follow=follow):
        if status.replicas or over:
            require_log(status)
        logs.add(status, waits=not over)
        for _ in logs.show(last=over):
            pass
    return status


class _Lines:
    """Collects whole lines, each with the name of its replica in front if names have a width."""

    def __init__(self, name: str, width: int) -> None:
        self._head, self._rest = f"{name:<{width}} | " if width else "", b""
        self._lines: list[str] = []

    def write(self, piece: bytes, /) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._lines += [self._head + line.decode(errors="replace") for line in lines]

    def flush(self) -> None:
        if self._rest:
            self.write(b"\n")

    def taken(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


def _lines(logs: JobLogs[_Lines], rounds: Iterator[tuple[JobStatus, bool]]) -> Iterator[str]:
    for status, over in rounds:
        logs.add(status, waits=not over)
        for sink in logs.show(last=over):
            yield from sink.taken()


def _rounds(job: "Job", *, follow: bool) -> Iterator[tuple[JobStatus, bool]]:
    """Yield how the job is, with `follow` again and again, and whether that is the last.

    Once it has begun this is read from its directory, and the daemon, which may come and go, only asked at its end.
    """
    status = job.status()
    while True:
        over = not follow or (status.state in JOB_TERMINAL and _is_final(job))
        yield status, over
        if over:
            return
        time.sleep(_POLL_S if status.replicas else _QUEUE_POLL_S)
        status = read_job(job.run_dir) if status.replicas else job.status()


def _is_final(job: "Job") -> bool:
    """Return False if the daemon has queued the job again, or is about to."""
    try:
        return job.status().state in JOB_TERMINAL
    except NotFound:
        return True


def _require_types(replica: str | None, lines: int | None) -> None:
    require_type(replica, str | None, "replica")
    require_type(lines, Annotated[int, msgspec.Meta(ge=0)] | None, "lines")
