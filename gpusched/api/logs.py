"""What a job's processes write: as lines, or as it is; to its end, if it is followed. See Job.logs."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from gpusched.api.member_logs import follow_members, read_members
from gpusched.api.validation import require_type
from gpusched.errors import NotFound
from gpusched.execution.job_logs import JobLogs, LogPiece, require_kept_log, require_log
from gpusched.execution.read_jobs import read_job
from gpusched.model.status import JOB_TERMINAL, JobStatus

if TYPE_CHECKING:
    from gpusched.api.handle import Job

__all__ = ["NewLines", "log_lines", "log_pieces"]

_POLL_S: Final = 0.1
_QUEUE_POLL_S: Final = 0.3
_MOST_AT_ONCE: Final = 1 << 20


def log_lines(job: "Job", replica: str | None, lines: int | None, *, follow: bool) -> Iterator[str]:
    """Yield the lines as Job.logs does. Raises at once for a wrong argument, and for a replica that there is not."""
    logs, status = _logs(replica, lines), job.status()
    if status.array is None:
        logs.add(status, waits=follow)
        require_kept_log(status)
    return _Lines().of(_pieces(job, status, logs, follow=follow))


def log_pieces(job: "Job", replica: str | None, lines: int | None, *, follow: bool) -> Iterator[LogPiece]:
    """Yield the pieces as Job.log_pieces does. Raises at once for a wrong argument."""
    logs = _logs(replica, lines)
    return _pieces(job, job.status(), logs, follow=follow, required=True)


def _logs(replica: str | None, lines: int | None) -> JobLogs:
    require_type(replica, str | None, "replica")
    require_type(lines, Annotated[int, msgspec.Meta(ge=0)] | None, "lines")
    return JobLogs(replica, lines)


def _pieces(
    job: "Job", status: JobStatus, logs: JobLogs, *, follow: bool, required: bool = False
) -> Iterator[LogPiece]:
    if status.array is not None and not follow:
        return read_members(job.id, logs)
    return _pieces_as_they_come(job, status, logs, follow=follow, required=required)


def _pieces_as_they_come(
    job: "Job", first: JobStatus, logs: JobLogs, *, follow: bool, required: bool
) -> Iterator[LogPiece]:
    for status, over in _rounds(job, first, follow=follow):
        if status.array is not None:  # known at once, or as soon as the daemon is back
            yield from follow_members(job.id, logs)
            return
        if required and (status.replicas or over):
            require_log(status)
        logs.add(status, waits=not over)
        yield from logs.pieces(last=over)


class NewLines:
    """The lines of a job's logs from the last `lines` on, each once, for a view that is drawn again and again.

    `replica` and `lines` as in Job.logs.
    """

    def __init__(self, job: "Job", replica: str | None = None, lines: int | None = None) -> None:
        self._job, self._logs, self._lines = job, _logs(replica, lines), _Lines(_MOST_AT_ONCE)

    def read(self, status: JobStatus | None = None) -> tuple[list[str], bool]:
        """Return what was written since the last call, and whether that is all that there will be. It never waits.

        `status`: of now, where it was read already. Little more than 1 MiB at once; the rest is for the next call.
        Raises NotFound for a log that there is not, and HostFault.
        """
        status = self._job.status() if status is None else status
        over = status.state in JOB_TERMINAL
        if status.replicas or over:
            require_log(status)
        self._logs.add(status, waits=not over)
        lines, taken = list[str](), 0
        for piece in self._logs.pieces(last=over):
            lines += self._lines.of((piece,))
            taken += len(piece[2])
            if taken > _MOST_AT_ONCE:
                return lines, False
        return lines, over

    @property
    def unfinished(self) -> list[str]:
        """The lines that have no end yet, such as progress bars."""
        return self._lines.unfinished


class _Lines:
    """Makes whole lines of pieces. What is left of a line waits for its rest, up to `longest` bytes (None: any)."""

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self._rests: dict[tuple[str, int], bytes] = {}

    def of(self, pieces: Iterable[LogPiece]) -> Iterator[str]:
        """Yield whole lines, each with the name of its replica in front if names have a width."""
        for name, width, piece in pieces:
            rest = self._rests.pop((name, width), b"")
            *lines, rest = (rest + (piece or b"\n" * bool(rest))).split(b"\n")
            if self._longest is not None and len(rest) > self._longest:
                lines, rest = [*lines, rest], b""
            if rest:
                self._rests[name, width] = rest
            for line in lines:
                yield _named(name, width, line)

    @property
    def unfinished(self) -> list[str]:
        """What waits for its rest."""
        return [_named(name, width, rest) for (name, width), rest in self._rests.items()]


def _named(name: str, width: int, line: bytes) -> str:
    return (f"{name:<{width}} | " if width else "") + line.decode(errors="replace")


def _rounds(job: "Job", status: JobStatus, *, follow: bool) -> Iterator[tuple[JobStatus, bool]]:
    """Yield how the job is, with `follow` again and again, and whether that is the last.

    Once it has begun this is read from its directory, and the daemon, which may come and go, only asked at its end.
    """
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
