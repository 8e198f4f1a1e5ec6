"""The logs of a job's replicas, as they grow."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault, NotFound
from gpusched.execution.log_cut import HEAD, cut_line, read_cut
from gpusched.execution.removed import removed_logs_note
from gpusched.linux.regular_files import next_data, next_hole, open_regular
from gpusched.model.status import ENDED, JOB_TERMINAL, JobStatus

__all__ = ["JobLogs", "LogPiece", "LogTail", "require_kept_log", "require_log"]

LogPiece = tuple[str, int, bytes]
"""A replica, the width of the names of all replicas (0 where there is one only), and what was added to its log.

Pieces may end within a line. An empty one is the end of the log.
"""

_MOST_NAMES: Final = 12
_BLOCK: Final = 1 << 16
_LONGEST_SEARCH: Final = 1 << 28


class JobLogs:
    """Reads the logs of one `replica`, or of all (None), each from its last `lines` on (None: from its beginning)."""

    def __init__(self, replica: str | None, lines: int | None) -> None:
        self._replica, self._from = replica, lines
        self._tails: dict[str, tuple[int, LogTail]] = {}

    def for_another(self, *, whole: bool = False) -> "JobLogs":
        """Return what reads the same replica of another job, from as many lines on, or the `whole` of its logs."""
        return JobLogs(self._replica, None if whole else self._from)

    def add(self, job: JobStatus, *, waits: bool) -> None:
        """Read those replicas, too, that `job` has now: one that is queued has none.

        Raises NotFound for a replica that there is not; `waits`: only if there are others.
        """
        names = [one.name for one in job.replicas]
        if self._replica is not None and self._replica not in names and (names or not waits):
            more = f" and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
            there = ", ".join(names[:_MOST_NAMES]) or "none yet"
            raise NotFound(f"{job.id} has no replica {self._replica!r}", f"there is: {there}{more}")
        chosen = [one for one in job.replicas if self._replica in (None, one.name)]
        logged = [(one.name, Path(one.log)) for one in chosen if one.log is not None]
        width = max(len(name) for name, _ in logged) if len(logged) > 1 else 0
        for name, path in logged:
            if name not in self._tails:
                self._tails[name] = width, LogTail(path, self._from)

    def pieces(self, *, last: bool) -> Iterator[LogPiece]:
        """Yield what was added since the last call, log by log; the `last` time the end of each, too.

        Raises HostFault for a log that cannot be read.
        """
        for name, (width, tail) in self._tails.items():
            for piece in tail.pieces():
                yield name, width, piece
            if last:
                yield name, width, b""


class LogTail:
    """The log `path` from its last `lines` lines on (None: from its beginning), whether it is there yet or not."""

    def __init__(self, path: Path, lines: int | None) -> None:
        self._path = path
        self._position, self._cut = (0, 0) if lines is None else _position_of(path, lines)

    def pieces(self) -> Iterator[bytes]:
        """Yield what has been added since the last call. Raises HostFault.

        What is added meanwhile is for the next call, or a program that writes faster than its log is read would keep
        the reader for ever. What nothing was ever written to, in a log that was cut short or made long, is left out.
        Where the log was cut because of its cap, a line states that, also to a reader that had not come so far.
        """
        try:
            descriptor = open_regular(self._path, os.O_RDONLY)
            try:
                yield from self._until(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise HostFault(f"{self._path}: {error.strerror}", "make it a readable file") from None

    def _until(self, descriptor: int, end: int) -> Iterator[bytes]:
        if (cut := read_cut(descriptor)) is not None:
            if cut.moved:
                yield from self._moved(cut.size - self._cut)
            self._cut = cut.size
        if end < self._position:  # it was emptied
            self._position = 0
        while self._position < end:
            begin = next_data(descriptor, self._position)
            if HEAD < self._position < begin and (cut := read_cut(descriptor)) and begin <= HEAD + cut.hole:
                yield cut_line(begin - self._position)  # at HEAD itself, the line in the log has just been read
            piece = os.pread(descriptor, max(0, min(_BLOCK, end - begin, next_hole(descriptor, begin) - begin)), begin)
            self._position = begin
            if next_data(descriptor, begin) != begin:  # it was cut meanwhile
                continue
            if not piece:
                break
            self._position += len(piece)
            yield piece

    def _moved(self, size: int) -> Iterator[bytes]:
        """Follow what was moved up by `size` bytes in the place of what was cut."""
        if size > 0 and self._position > HEAD:
            if self._position - size < HEAD:
                yield cut_line(HEAD + size - self._position)
            self._position = max(HEAD, self._position - size)


def _position_of(path: Path, lines: int) -> tuple[int, int]:
    """Return where the last `lines` lines of a file begin, and how much was cut of it by then.

    Of those lines that it can have in its last 256 MiB.
    """
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError:
        return 0, 0
    try:
        cut = read_cut(descriptor)
        end, span, found = os.fstat(descriptor).st_size, 0, b""
        while span < min(end, _LONGEST_SEARCH) and found.count(b"\n") <= lines:
            span = min(end, max(_BLOCK, 4 * span))
            found = os.pread(descriptor, span, end - span)
    finally:
        os.close(descriptor)
    known = cut.size if cut else 0
    if not lines:
        return end, known
    *whole, rest = found.split(b"\n")
    kept = [*(line + b"\n" for line in whole), *([rest] if rest else [])][-lines:]
    return end - sum(map(len, kept)), known


def require_log(job: JobStatus) -> None:
    """Raise NotFound for a job that has not started, or whose output is not kept."""
    if not job.replicas:
        hint = "" if job.state in JOB_TERMINAL else f"follow it from its start: gpusched logs -f {job.id}"
        raise NotFound(f"{job.id} has no log: it {ENDED.get(job.state, f'is {job.state}')}", hint)
    if all(one.log is None for one in job.replicas):
        raise NotFound(
            f"{job.id} has no log: its output went where gpusched run was typed", "run it with -d to have it kept"
        )
    require_kept_log(job)


def require_kept_log(job: JobStatus) -> None:
    """Raise NotFound for a job whose logs were removed because of keep_logs."""
    if job.state in JOB_TERMINAL and (note := removed_logs_note(Path(job.run_dir))) is not None:
        raise NotFound(
            f"{job.id} has no log any more: {note}", "keep_logs in the configuration is how long logs are kept"
        )
