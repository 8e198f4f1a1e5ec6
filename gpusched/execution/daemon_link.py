"""What is asked of the daemon, with the answers as values; and how long a daemon that is away is waited for."""

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from gpusched.errors import GpuschedError, HostFault, NoDaemon, NotFound, ProtocolError, UsageError
from gpusched.linux.interrupt import raise_if_interrupted
from gpusched.settings import Settings

if TYPE_CHECKING:  # a command's --help needs none of these, and ZeroMQ takes its time
    from gpusched.control.client import Client
    from gpusched.control.messages import (
        Answer,
        ChangeGroup,
        ListGroups,
        Removed,
        Request,
        Rerun,
        Resume,
        Submit,
        TurnIs,
    )
    from gpusched.model.job import Submission
    from gpusched.model.queue_group import GroupStatus
    from gpusched.model.selection import Selection
    from gpusched.model.status import JobStatus
    from gpusched.model.usage import RoleUsage
    from gpusched.model.why import Why

__all__ = ["Link", "in_parts"]

_AWAY_S: Final = 60.0
_AGAIN_S: Final = 0.2
_SUBMITTED_AGAIN_S: Final = 5.0
_LONGEST_ID: Final = 128
_LONGEST_NAME: Final = 256
_IN_A_MESSAGE: Final = 5000

SomeAnswer = TypeVar("SomeAnswer", bound="Answer")


class Link:
    """The daemon of this user, as a context manager. `starts`: it is started if there is none.

    `lasting`: once it has answered, a daemon that goes away is waited for (or started again) for a minute. All
    questions raise NoDaemon, and the error that the daemon names when it refuses.
    """

    def __init__(self, settings: Settings, *, starts: bool = False, lasting: bool = False) -> None:
        self._settings, self._starts, self._lasting = settings, starts, lasting
        self._client: Client | None = None
        self._answered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the link; the next question makes a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def submit(self, submission: "Submission") -> "JobStatus":
        """Put a job into the queue and return it as it is then.

        A daemon that ends before it answers may have the job on disk. So the next one is asked for the same, and by the
        token it sees that it is the same. Where there is no next one within 5 s, the error states that it is not known.
        """
        from msgspec.structs import replace

        from gpusched.control.messages import Submit

        return self._taken(Submit(job=replace(submission, token=os.urandom(16).hex())))

    def rerun(self, request: "Rerun") -> "JobStatus":
        """Queue a new job that is as another was, and return it as it is then; see `submit`, and messages.Rerun."""
        from msgspec.structs import replace

        return self._taken(replace(request, token=os.urandom(16).hex()))

    def resume(self, request: "Resume") -> "JobStatus":
        """Queue an array again that has ended, and return it as it is then; see messages.Resume."""
        from gpusched.control.messages import Submitted

        return self._ask(request, Submitted).job

    def _taken(self, request: "Submit | Rerun") -> "JobStatus":
        from gpusched.control.client import Unanswered
        from gpusched.control.messages import Submitted

        deadline = None
        while True:
            try:
                self._connected().connect()
            except GpuschedError as error:
                if deadline is None:
                    raise
                if time.monotonic() > deadline:
                    raise _perhaps_queued(error) from None
                time.sleep(_AGAIN_S)
                continue
            try:
                return self._ask(request, Submitted).job
            except Unanswered as error:
                now = time.monotonic()
                deadline = deadline or now + _SUBMITTED_AGAIN_S
                if not error.gone or now > deadline:
                    raise _perhaps_queued(error) from None
                self.close()
            except (NoDaemon, HostFault) as error:  # such as a newer one, or one whose disk is full
                if deadline is None:
                    raise
                raise _perhaps_queued(error) from None

    def jobs(self, ids: Sequence[str] = (), ended: int = 0) -> tuple["JobStatus", ...]:
        """Return the jobs `ids`, or all that live and the `ended` latest of the others."""
        from gpusched.control.messages import MOST_ENDED, Jobs, ListJobs

        if len(ids) > MOST_ENDED:
            return tuple(job for part in in_parts(ids, MOST_ENDED) for job in self.jobs(part))
        found = self._ask(ListJobs(ids=tuple(ids), ended=min(ended, MOST_ENDED)), Jobs).jobs
        by_id, skip = {job.id: job for job in found}, MOST_ENDED
        while found and skip < ended and not ids:
            found = self._ask(ListJobs(ended=min(ended - skip, MOST_ENDED), skip=skip), Jobs).jobs
            for job in found:  # what ends meanwhile moves the others on: some come twice, and none is left out
                by_id.setdefault(job.id, job)
            skip += MOST_ENDED
        return tuple(by_id.values())

    def select(self, jobs: "Selection") -> tuple[str, ...]:
        """Return the ids of the jobs that are meant. Raises NotFound for a name that means none."""
        from gpusched.control.messages import Select, Selected

        for name in jobs.names:
            if not 0 < len(name) <= _LONGEST_NAME:
                raise NotFound(f"there is no job {name[:_LONGEST_NAME]!r}", "see `gpusched ps --all`")
        return self._ask(Select(jobs=jobs), Selected).ids

    def usage(self, ids: Sequence[str], since: float) -> tuple["RoleUsage", ...]:
        """Return what jobs used; see messages.ListUsage."""
        from gpusched.control.usage_messages import ListUsage, Usages

        parts = in_parts(ids) if ids else [()]
        return tuple(row for part in parts for row in self._ask(ListUsage(ids=part, since=since), Usages).rows)

    def turn(self, job: str, wait_s: float) -> "TurnIs":
        """Return whether the turn of an attached job has come, after `wait_s` at the latest."""
        from gpusched.control.messages import Turn, TurnIs

        return self._ask(Turn(id=job, wait_s=wait_s), TurnIs)

    def ended(self, ids: Sequence[str], wait_s: float) -> tuple["JobStatus", ...]:
        """Return the jobs when all of them have ended, or after `wait_s`."""
        from gpusched.control.messages import Await, Jobs

        return self._ask(Await(ids=tuple(ids), wait_s=wait_s), Jobs).jobs

    def explained(self, job: str) -> "Why":
        """Return why a job waits, and when it starts."""
        from gpusched.control.messages import Explain, Explained

        return self._ask(Explain(id=job), Explained).why

    def remove(self, ids: Sequence[str], *, keep_results: bool) -> "Removed":
        """Have jobs forgotten that have ended; see messages.Remove."""
        from gpusched.control.messages import Remove, Removed

        return self._ask(Remove(ids=tuple(ids), keep_results=keep_results), Removed)

    def groups(self, request: "ListGroups | ChangeGroup") -> tuple["GroupStatus", ...]:
        """Return the groups that are asked for, as they are once they are changed."""
        from gpusched.control.messages import Groups

        return self._ask(request, Groups).groups

    def done(self, request: "Request") -> tuple[str, ...]:
        """Have something done, and return the lines to print about it."""
        from gpusched.control.messages import Done

        return self._ask(request, Done).report

    def _ask(self, request: "Request", kind: type[SomeAnswer]) -> SomeAnswer:
        for name in (request.id,) if hasattr(request, "id") else getattr(request, "ids", ()):
            if not 0 < len(name) <= _LONGEST_ID:
                raise NotFound(f"there is no job {name!r}", "see `gpusched ps --all`")
        deadline = None
        while True:
            raise_if_interrupted()
            try:
                answer = self._connected().ask(request)
            except UnicodeEncodeError as error:
                message = f"{error.object!a} is not UTF-8, and the daemon takes nothing else"
                raise UsageError(message, "rename the file, or put the command into a script") from None
            except NoDaemon:
                now = time.monotonic()
                deadline = deadline or now + _AWAY_S
                if not (self._lasting and self._answered) or now > deadline:
                    raise
                self.close()
                time.sleep(_AGAIN_S)
            else:
                self._answered = True
                if not isinstance(answer, kind):
                    raise ProtocolError(f"the daemon answered {type(answer).__name__}, not {kind.__name__}")
                return answer

    def _connected(self) -> "Client":
        if self._client is None:
            from gpusched.control.client import Client, connect_or_start

            self._client = connect_or_start(self._settings) if self._starts else Client(self._settings)
        return self._client


def in_parts(ids: Sequence[str], most: int = _IN_A_MESSAGE) -> Iterator[tuple[str, ...]]:
    """Yield the ids in parts, of `most` each."""
    for begin in range(0, len(ids), most):
        yield tuple(ids[begin : begin + most])


def _perhaps_queued(error: GpuschedError) -> GpuschedError:
    message = f"{error.message}; the daemon that was asked first may have queued the job all the same"
    kind = NoDaemon if isinstance(error, NoDaemon) else type(error)
    return kind(message, "before you submit it again, see whether it is there: gpusched ps --all")
