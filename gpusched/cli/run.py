"""`gpusched run`: any command under the leases, the limits and the queue, as if it stood there without us."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpusched.cli.command_options import Fraction, Gpus, Machine, MemoryLimit, NumGpus, Processes
from gpusched.cli.planning import ExcludeGpus
from gpusched.cli.queue_options import After, AfterAny, At, Detach, Grace, Hold, Name, Priority, Requeue, TimeLimit
from gpusched.errors import GpuschedError, HostFault, JobFailed, UsageError
from gpusched.execution.command_options import CommandOptions
from gpusched.execution.daemon_link import Link
from gpusched.execution.plan_options import machine_meant
from gpusched.execution.queue_options import QueueOptions, parse_grace
from gpusched.execution.requirements import require_program
from gpusched.render.text import printable
from gpusched.settings import load_settings, machine_typed, places

if TYPE_CHECKING:
    from gpusched.control.messages import TurnIs
    from gpusched.model.job import Submission
    from gpusched.model.status import JobStatus

__all__ = ["run"]

_FIRST_WAIT_S: Final = 0.3
_WAIT_S: Final = 2.0
_BY_SIGNAL: Final = 128
_STARTS: Final = 5
_LEAVING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="A program and its arguments; -- before it if it needs.")
    ],
    num_gpus: NumGpus = None,
    memory: MemoryLimit = None,
    fraction: Fraction = None,
    processes: Processes = None,
    gpus: Gpus = None,
    exclude_gpus: ExcludeGpus = None,
    machine: Machine = None,
    name: Name = None,
    priority: Priority = 0,
    after: After = None,
    after_any: AfterAny = None,
    at: At = None,
    time_limit: TimeLimit = None,
    grace: Grace = None,
    hold: Hold = False,
    requeue: Requeue = False,
    detach: Detach = False,
    as_json: Annotated[bool, typer.Option("--json", help="With -d: print the queued job as JSON.")] = False,
) -> None:
    """Run a command on GPUs that no other job gets meanwhile; wait in the queue until they are free.

    Its input, output, signals and exit code are those of the command. Ctrl-C while it waits takes it out of the queue.

    Example: gpusched run --fraction 0.4 -- python train.py --epochs 3
    """
    from gpusched.cli.submitted import submit_detached
    from gpusched.execution.start import this_process
    from gpusched.execution.submission import command_submission

    queue = QueueOptions(name, priority, tuple(after or ()), at, time_limit, hold, requeue, tuple(after_any or ()))
    if not detach and (as_json or requeue):
        option = "--json" if as_json else "--requeue"
        raise UsageError(f"{option} belongs to a command in the background", "add -d, or leave it out")
    settings = load_settings(os.environ)
    wish = CommandOptions(num_gpus, memory, fraction, gpus, exclude_gpus, machine_typed(machine), processes)
    if wish.need().devices != 0:
        wish = wish._replace(machine=machine_meant(machine, settings))
    submission = command_submission(command, wish, queue, None if detach else this_process(), parse_grace(grace))
    if not queue.follows:  # what goes before may still make the program
        require_program(command[0])
    if detach:
        submit_detached(submission, settings, as_json=as_json)
        return
    with Link(settings, starts=True, lasting=True) as link:
        code = _in_the_foreground(link, submission)
    raise typer.Exit(code)


def _in_the_foreground(link: Link, submission: "Submission") -> int:
    """Wait for the turn, run the command, and return its exit code."""
    job = ""
    with _asked_to_leave() as by:
        try:
            job = link.submit(submission).id
            for left in reversed(range(_STARTS)):
                turn = _await_turn(link, job)
                if not turn.come:
                    raise _ended_before_start(turn.job)
                code = _attached(link, turn.job, again=left > 0)
                if code is not None:
                    return code
        except KeyboardInterrupt:
            if job:  # else the daemon sees that we are gone
                _take_back(link, job)
            return _BY_SIGNAL + by[-1]
    raise AssertionError("the last start ends with a code or an error")


def _await_turn(link: Link, job: str) -> "TurnIs":
    """Return when the turn of the job has come, or the job is over; until then print on stderr why it waits."""
    from gpusched.model.status import JOB_TERMINAL

    notice, wait_s = _Notice(), _FIRST_WAIT_S
    try:
        while True:
            turn = link.turn(job, wait_s)
            if turn.come or turn.job.state in JOB_TERMINAL:
                return turn
            notice.show(_waiting(turn.job))
            wait_s = _WAIT_S
    finally:
        notice.clear()


def _attached(link: Link, job: "JobStatus", *, again: bool) -> int | None:
    """Start the job's guard as a child of this process, wait for its end, and return the command's exit code.

    None, if `again`: nothing was started because the daemon died before the guard had the lease. The next one gives the
    job another turn, unless a signal asked us to end meanwhile.
    """
    from gpusched.cli.attached import Attached, exit_code, signals_kept
    from gpusched.execution.directory import JobDirectory, as_lost, last_lines
    from gpusched.execution.guard_lock import has_begun, read_nonce
    from gpusched.execution.start import spawn
    from gpusched.model.status import JOB_TERMINAL

    directory = JobDirectory(Path(job.run_dir))
    link.close()  # while the command runs, nothing here needs the daemon
    with signals_kept():
        try:
            guard = spawn(directory, read_nonce(directory), os.environ | places(os.environ), attached=True)
        except GpuschedError:
            _take_back(link, job.id)
            raise
        unheard = Attached(directory, guard).wait()
    ended = directory.read_status()
    if ended is not None and ended.state not in JOB_TERMINAL:
        ended = as_lost(ended, "its guard and its supervisor were killed")
    if ended is None:
        asked = [number for number in unheard if number in _LEAVING]
        if again and not asked and not has_begun(directory):
            return None
        _take_back(link, job.id)
        if asked:
            return _BY_SIGNAL + asked[0]
        lines = last_lines(directory.supervisor_log, 1) or ["it ended and wrote nothing"]
        raise HostFault(f"{job.id} did not start: {lines[0]}", f"see {directory.supervisor_log}")
    if not ended.replicas:  # it was stopped after its turn had come
        raise _ended_before_start(ended)
    _report_end(ended)
    return exit_code(ended)


def _ended_before_start(job: "JobStatus") -> JobFailed:
    why = f": {job.message}" if job.message else ""
    return JobFailed(f"{job.id} was {job.state} before it could start{why}")


@contextmanager
def _asked_to_leave() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP end the wait as Ctrl-C does; yield the list of those that came."""
    came: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    caught = [number for number in _LEAVING if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, leave) for number in caught]
    try:
        yield came
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


def _take_back(link: Link, job: str) -> None:
    """Take a job that does not run out of the queue; a daemon that is away sees by itself that we are gone."""
    from gpusched.control.messages import Stop

    with suppress(GpuschedError):
        link.done(Stop(ids=(job,), kill=True))


def _waiting(job: "JobStatus") -> str:
    if job.held:
        return f"{job.id} is held; let it go with: gpusched release {job.id}"
    return f"{job.id} waits: {job.why}" if job.why else f"{job.id} waits for its turn"


def _report_end(job: "JobStatus") -> None:
    """Print on stderr what the exit code does not show: who ended the command, or why it did not start."""
    end = job.replicas[0].exit
    if end is not None and end.kind == "spawn-failed":
        print(f"gpusched: {printable(end.message or '')}", file=sys.stderr)
    elif job.message and (end is None or end.kind not in ("completed", "crashed", "signalled")):
        print(f"gpusched: {job.id}: {printable(job.message)}", file=sys.stderr)


class _Notice:
    """One line on stderr: always the latest one in a terminal, only the first one elsewhere."""

    def __init__(self) -> None:
        from gpusched.render.ansi import is_plain

        self._live = not is_plain(sys.stderr)
        self._shown = ""

    def show(self, text: str) -> None:
        """Show the line."""
        from gpusched.render.text import cut

        line = printable(text)
        with suppress(OSError):  # a full disk under stderr is no reason to lose one's place
            if self._live and line != self._shown:
                columns = shutil.get_terminal_size().columns
                print(f"\r\x1b[K{cut(line, columns - 1)}", end="", file=sys.stderr, flush=True)
            elif not self._shown:
                print(f"gpusched: {line}", file=sys.stderr, flush=True)
        self._shown = line

    def clear(self) -> None:
        """Take the line away."""
        with suppress(OSError):
            if self._live and self._shown:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
