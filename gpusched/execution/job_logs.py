"""The logs of a job's replicas, as they grow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from gpusched.errors import NotFound
from gpusched.execution.log_tail import LogTail, Sink
from gpusched.model.status import ENDED, JOB_TERMINAL, JobStatus

__all__ = ["JobLogs", "require_log"]

_MOST_NAMES: Final = 12

SomeSink = TypeVar("SomeSink", bound=Sink)


class JobLogs(Generic[SomeSink]):
    """Reads the logs of one `replica`, or of all (None), each from its last `lines` on (None: from its beginning).

    `sink_of` makes what takes the log of a replica, of its name and the width of all names; 0 where there is one only.
    """

    def __init__(self, replica: str | None, lines: int | None, sink_of: Callable[[str, int], SomeSink]) -> None:
        self._replica, self._from, self._sink_of = replica, lines, sink_of
        self._tails: dict[str, tuple[LogTail, SomeSink]] = {}

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
                sink = self._sink_of(name, width)
                self._tails[name] = LogTail(path, self._from, sink), sink

    def show(self, *, last: bool) -> Iterator[SomeSink]:
        """Yield each sink when it has what was added since the last call; `last`: also a line without an end.

        Raises HostFault for a log that cannot be read.
        """
        for tail, sink in self._tails.values():
            tail.show(last=last)
            yield sink


def require_log(job: JobStatus) -> None:
    """Raise NotFound for a job that has not started, or whose output is not kept."""
    if not job.replicas:
        hint = "" if job.state in JOB_TERMINAL else f"follow it from its start: gpusched logs -f {job.id}"
        raise NotFound(f"{job.id} has no log: it {ENDED.get(job.state, f'is {job.state}')}", hint)
    if all(one.log is None for one in job.replicas):
        raise NotFound(
            f"{job.id} has no log: its output went where gpusched run was typed", "run it with -d to have it kept"
        )
