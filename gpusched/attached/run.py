"""From the queue to the end of a command that stands in this process's place."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from gpusched.attached.command import Attached, exit_code, signals_kept
from gpusched.control.messages import Done, Stop, Turn, TurnIs
from gpusched.errors import GpuschedError, HostFault, JobFailed
from gpusched.execution.daemon_link import Link
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import has_begun, read_nonce
from gpusched.execution.start import spawn, why_not_started
from gpusched.linux.interrupt import forget_interrupt, note_interrupt, raise_if_interrupted
from gpusched.model.job import Submission
from gpusched.model.status import JOB_TERMINAL, JobStatus, as_lost
from gpusched.settings import Settings, places

__all__ = ["AttachedEnd", "Waits", "run_attached"]

_FIRST_WAIT_S: Final = 0.3
_WAIT_S: Final = 2.0
_BY_SIGNAL: Final = 128
_STARTS: Final = 5
_LEAVING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Waits = Callable[[JobStatus | None], None]
"""Called with the job while it waits for its turn, and with None when it waits no more."""


class AttachedEnd(NamedTuple):
    """How a command ended: its exit `code` as a shell has it, and its `job`.

    The job is None where a signal asked this process to leave before the command could start.
    """

    code: int
    job: JobStatus | None


def run_attached(submission: Submission, settings: Settings, waits: Waits) -> AttachedEnd:
    """Queue a command whose launcher is this process, wait for its turn, run it, and return its end.

    It belongs into the main thread, as it handles signals. Raises JobFailed for a job that was ended before it could
    start, NoDaemon, and HostFault.
    """
    with Link(settings, starts=True, lasting=True) as link, _asked_to_leave() as by:
        job = ""
        try:
            job = link.submit(submission).id
            for left in reversed(range(_STARTS)):
                turn = _await_turn(link, job, waits)
                raise_if_interrupted()
                if not turn.come:
                    raise _ended_before_start(turn.job)
                end = _run(link, turn.job, submission.environ, again=left > 0)
                if end is not None:
                    return end
        except KeyboardInterrupt:
            forget_interrupt()
            if job:  # else the daemon sees that this process is gone
                _take_back(link, job)
            return AttachedEnd(_BY_SIGNAL + (by[-1] if by else signal.SIGINT), None)
    raise AssertionError("the last start ends with a code or an error")


def _await_turn(link: Link, job: str, waits: Waits) -> TurnIs:
    """Return when the turn of the job has come, or the job is over."""
    wait_s = _FIRST_WAIT_S
    try:
        while True:
            turn = link.ask(Turn(id=job, wait_s=wait_s), TurnIs)
            if turn.come or turn.job.state in JOB_TERMINAL:
                return turn
            waits(turn.job)
            wait_s = _WAIT_S
    except KeyboardInterrupt:  # run_attached takes it back
        raise
    except BaseException:  # of `waits`, too: a caller that goes on would have the job take devices
        _take_back(link, job)
        raise
    finally:
        waits(None)


def _run(link: Link, job: JobStatus, environ: Mapping[str, str], *, again: bool) -> AttachedEnd | None:
    """Start the job's guard as a child of this process, wait for its end, and return how the command ended.

    `environ` is what it has beside this process's environment.

    None, if `again`: nothing was started because the daemon died before the guard had the lease. The next one gives the
    job another turn, unless a signal asked us to end meanwhile.
    """
    directory = JobDirectory(Path(job.run_dir))
    link.close()  # while the command runs, nothing here needs the daemon
    with signals_kept():
        try:
            environment = {**os.environ, **places(os.environ), **environ}
            guard = spawn(directory, read_nonce(directory), environment, attached=True)
        except GpuschedError:
            _take_back(link, job.id)
            raise
        undelivered = Attached(directory, guard).wait()
    ended = directory.read_status()
    if ended is not None and ended.state not in JOB_TERMINAL:
        ended = as_lost(ended, "its guard and its supervisor were killed")
    if ended is None:
        asked = [number for number in undelivered if number in _LEAVING]
        if again and not asked and not has_begun(directory):
            return None
        _take_back(link, job.id)
        if asked:
            return AttachedEnd(_BY_SIGNAL + asked[0], None)
        raise HostFault(f"{job.id} did not start: {why_not_started(directory)}", f"see {directory.supervisor_log}")
    if not ended.replicas:  # it was stopped after its turn had come
        raise _ended_before_start(ended)
    return AttachedEnd(exit_code(ended), ended)


def _ended_before_start(job: JobStatus) -> JobFailed:
    why = f": {job.message}" if job.message else ""
    return JobFailed(f"{job.id} was {job.state} before it could start{why}")


@contextmanager
def _asked_to_leave() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP end the wait as Ctrl-C does; yield the list of those that came."""
    came: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        note_interrupt()
        raise KeyboardInterrupt

    caught = [number for number in _LEAVING if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, leave) for number in caught]
    try:
        yield came
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)
        forget_interrupt()


def _take_back(link: Link, job: str) -> None:
    """Take a job that does not run out of the queue; a daemon that is away sees by itself that we are gone."""
    with suppress(GpuschedError):
        why = "its command was ended, as by Ctrl-C, before it could start"
        link.ask(Stop(ids=(job,), kill=True, why=why), Done)
