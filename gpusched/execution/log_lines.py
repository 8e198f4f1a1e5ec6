"""The lines of a job's logs as text, for readers in Python."""

from collections.abc import Iterator
from pathlib import Path

from gpusched.errors import NotFound
from gpusched.execution.log_tail import LogTail
from gpusched.model.status import JobStatus

__all__ = ["LogLines"]


class LogLines:
    """Reads the logs of one `replica`, or of all (None), each from its last `lines` on (None: from its beginning)."""

    def __init__(self, replica: str | None, lines: int | None) -> None:
        self._replica, self._from = replica, lines
        self._tails: dict[str, tuple[LogTail, _Lines]] = {}

    def add(self, job: JobStatus, *, waits: bool) -> None:
        """Read those replicas, too, that `job` has now: one that is queued has none.

        Raises NotFound for a replica that there is not; `waits`: only if there are others.
        """
        chosen = [one for one in job.replicas if self._replica in (None, one.name)]
        if self._replica is not None and not chosen and (job.replicas or not waits):
            there = ", ".join(one.name for one in job.replicas[:10]) or "none yet"
            raise NotFound(f"{job.id} has no replica {self._replica!r}", f"there is: {there}")
        logged = [(one.name, Path(one.log)) for one in chosen if one.log is not None]
        width = max((len(name) for name, _ in logged), default=0)
        for name, path in logged:
            if name not in self._tails:
                sink = _Lines(f"{name:<{width}} | " if len(logged) > 1 else "")
                self._tails[name] = LogTail(path, self._from, sink), sink

    def read(self, *, last: bool) -> Iterator[str]:
        """Yield the lines that were added since the last call; `last`: also one without an end. Raises HostFault."""
        for tail, sink in self._tails.values():
            tail.show(last=last)
            yield from sink.taken()


class _Lines:
    """Collects whole lines, each with `head` in front."""

    def __init__(self, head: str) -> None:
        self._head, self._rest = head, b""
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
