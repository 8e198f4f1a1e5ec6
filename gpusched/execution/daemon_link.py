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
    from gpusched.control.messages import Answer, Request, Rerun, Resume, Submit
    from gpusched.model.job import Submission
    from gpusched.model.selection import Selection
    from gpusched.model.status import JobStatus

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
        token it sees that it is the same. Where the next one cannot answer either, tried again for 5 s or a minute
        (`lasting`), the error states that it is not known whether the job is there.
        """
        from msgspec.structs import replace

        from gpusched.control.messages import Submit

        return self._taken(Submit(job=replace(submission, token=os.urandom(16).hex())))

    def again(self, request: "Rerun | Resume") -> "JobStatus":
        """Queue a new job that is as another was, or an array again, and return it as it is then; see `submit`."""
        from msgspec.structs import replace

        return self._taken(replace(request, token=os.urandom(16).hex()))

    def _taken(self, request: "Submit | Rerun | Resume") -> "JobStatus":
        from gpusched.control.client import Unanswered
        from gpusched.control.messages import Submitted

        patient, deadline = self._lasting and self._answered, None
        while True:
            connected = False
            try:
                self._connected().connect()
                connected = True
                return self._answer(request, Submitted).job
            except GpuschedError as error:
                away = isinstance(error, NoDaemon | HostFault)
                gone = error.gone if isinstance(error, Unanswered) else None
                if (connected and not away) or (deadline is None and gone is None):  # refused, or never asked
                    raise
                now = time.monotonic()
                deadline = deadline or now + (_AWAY_S if patient else _SUBMITTED_AGAIN_S)
                if not away or now > deadline or (gone is False and not patient):
                    raise _perhaps_queued(error) from None
                self.close()
                time.sleep(_AGAIN_S)

    def jobs(self, ids: Sequence[str] = (), ended: int = 0) -> tuple["JobStatus", ...]:
        """Return the jobs `ids`, or all that live and the `ended` latest of the others."""
        from gpusched.control.messages import MOST_ENDED, Jobs, ListJobs

        if len(ids) > MOST_ENDED:
            return tuple(job for part in in_parts(ids, MOST_ENDED) for job in self.jobs(part))
        found = self.ask(ListJobs(ids=tuple(ids), ended=min(ended, MOST_ENDED)), Jobs).jobs
        by_id, skip = {job.id: job for job in found}, MOST_ENDED
        while found and skip < ended and not ids:
            found = self.ask(ListJobs(ended=min(ended - skip, MOST_ENDED), skip=skip), Jobs).jobs
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
        return self.ask(Select(jobs=jobs), Selected).ids

    def ask(self, request: "Request", kind: type[SomeAnswer]) -> SomeAnswer:
        """Return the answer, which is of that kind. Raises NotFound for what cannot be the id of a job."""
        deadline = None
        while True:
            try:
                return self._answer(request, kind)
            except NoDaemon:
                now = time.monotonic()
                deadline = deadline or now + _AWAY_S
                if not (self._lasting and self._answered) or now > deadline:
                    raise
                self.close()
                time.sleep(_AGAIN_S)

    def _answer(self, request: "Request", kind: type[SomeAnswer]) -> SomeAnswer:
        raise_if_interrupted()
        for name in (request.id,) if hasattr(request, "id") else getattr(request, "ids", ()):
            if not 0 < len(name) <= _LONGEST_ID:
                raise NotFound(f"there is no job {name!r}", "see `gpusched ps --all`")
        try:
            answer = self._connected().ask(request)
        except UnicodeEncodeError as error:
            message = f"{error.object!a} is not UTF-8, and the daemon takes nothing else"
            raise UsageError(message, "rename the file, or put the command into a script") from None
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
    see = "before you submit it again, see whether it is there: gpusched ps --all"
    if isinstance(error, NoDaemon):
        return NoDaemon(message, see)
    return type(error)(message, f"{error.hint}; {see}" if error.hint else see)
