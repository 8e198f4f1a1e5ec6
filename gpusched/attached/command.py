"""A command that stands in this process's place: it has the terminal, and this process its signals and exit code.

The command runs in our process group (see the supervisor), so what a terminal sends reaches it by itself. A signal to
us alone, by kill(1), is passed on, and one to the whole group is not: see GroupWitness. A signal's si_code is above 0
where the kernel sent it. Within another job, that one's supervisor signals its whole session, and so the command as
well: that is not passed on.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gpusched.attached.group_witness import GroupWitness
from gpusched.errors import GpuschedError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.guard_lock import has_begun
from gpusched.execution.orders import PassedOnOrder, give
from gpusched.execution.relatives import is_supervisor_above
from gpusched.execution.start import stop
from gpusched.linux.processes import descendants, halted, inherited, start_time
from gpusched.model.status import REPLICA_TERMINAL, ExitReason, JobState, JobStatus

__all__ = ["Attached", "exit_code", "signals_kept"]

_PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
)
_LEAVING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_KEPT: Final = (*_PASSED_ON, signal.SIGTSTP, signal.SIGCHLD)
_POLL_S: Final = 0.02
_HALT_PATIENCE_S: Final = 1.0  # a program may ignore Ctrl-Z, and is not waited for longer
_CLEARING_PATIENCE_S: Final = 30.0  # a supervisor without its guard kills, sweeps, and saves its last word
_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128  # as a POSIX shell has them
_NO_SUCH_FILE: Final = os.strerror(2)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep signals waiting for Attached.wait, from before the guard is started until after its end."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would leave no end to wait for
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT)
    try:
        yield
    finally:
        while signal.sigtimedwait(_KEPT, 0) is not None:  # what came for a command that is over
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGCHLD, before)


class Attached:
    """The job in `directory`, whose `guard` is a child of this process."""

    def __init__(self, directory: JobDirectory, guard: int) -> None:
        self._directory, self._guard = directory, guard
        self._early: list[int] = []
        self._begun = False
        self._interrupts = 0
        self._witness = GroupWitness(_PASSED_ON)
        self._ignored = {number for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN}

    def wait(self) -> list[int]:
        """Wait until the job has ended; pass signals on until then. See signals_kept.

        Return the signals that no command has had because none was started.
        """
        while os.waitpid(self._guard, os.WNOHANG)[0] == 0:
            self._leave_streams()
            wakes = self._early or not self._begun
            received = signal.sigtimedwait(_KEPT, _POLL_S) if wakes else signal.sigwaitinfo(_KEPT)
            if received is not None:
                self._take(received)
            self._early = [number for number in self._early if not self._send(number)]
        while (received := signal.sigtimedwait(_KEPT, 0)) is not None:
            self._take(received)
        self._witness.close()
        deadline = time.monotonic() + _CLEARING_PATIENCE_S
        while self._directory.is_guarded() and time.monotonic() < deadline:  # the guard was killed
            time.sleep(_POLL_S)
        return self._early

    def _leave_streams(self) -> None:
        """Once the guard has all that was open for good, let go of it: the reader at the other end waits for an end."""
        if not self._begun and has_begun(self._directory):
            self._begun = True
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(nothing, stream)
            for descriptor in (nothing, *inherited()):
                os.close(descriptor)

    def _take(self, received: signal.struct_siginfo) -> None:
        number, by_kernel = received.si_signo, received.si_code > 0
        if number in (signal.SIGCHLD, *self._ignored):
            return
        foreign = not by_kernel and not self._has_command_had(number, received.si_pid)
        if number == signal.SIGTSTP:
            if foreign:
                self._send(number)
            self._await_halt()
            _stop_ourselves()
        elif foreign or (by_kernel and not self._has_it(number)):
            self._early.append(number)
        elif number == signal.SIGINT and by_kernel:
            self._interrupted()

    def _interrupted(self) -> None:
        """Kill what is left of the command at a second Ctrl-C, if it has ended itself: it cannot decide any more."""
        self._interrupts += 1
        status = self._directory.read_status()
        if status is not None and status.replicas and self._interrupts > 1:
            pid = status.replicas[0].pid
            if pid is not None and start_time(pid) is None:
                with suppress(GpuschedError):  # it is over
                    stop(status, "stopped by a second Ctrl-C", kill=True)

    def _await_halt(self) -> None:
        """Let the command halt first: a shell takes its terminal back as soon as we have, and both would read it."""
        deadline = time.monotonic() + _HALT_PATIENCE_S
        while time.monotonic() < deadline and not halted(descendants(self._guard), os.getpgrp()):
            time.sleep(_HALT_PATIENCE_S / 100)

    def _has_command_had(self, number: int, sender: int) -> bool:
        """Return whether the command has had a signal of `sender`, too. The witness first, while it has it fresh."""
        to_group = self._witness.has_had(number, sender) and self._is_started()
        return to_group or self._is_ours(sender) or self._is_for_all(sender)

    def _is_ours(self, pid: int) -> bool:
        """Return whether the process belongs to the job: what it sends to its group, the command has had itself."""
        return pid in descendants(self._guard)

    def _is_for_all(self, pid: int) -> bool:
        """Return whether the process is the supervisor of a job around this one, and signals the command itself."""
        status = self._directory.read_status() if is_supervisor_above(pid) else None
        command = status.replicas[0].pid if status is not None and status.replicas else None
        with suppress(OSError):  # it has just ended
            return command is not None and os.getsid(command) == os.getsid(0)
        return True

    def _has_it(self, number: int) -> bool:
        """Return whether the command has had the kernel's signal too: a hangup goes to a session's leader alone."""
        if number == signal.SIGHUP and os.getsid(0) == os.getpid():
            return False
        return self._is_started()

    def _is_started(self) -> bool:
        status = self._directory.read_status()
        return status is not None and any(one.pid is not None for one in status.replicas)

    def _send(self, number: int) -> bool:
        """Send a signal to the command; False if it has not begun yet. A pidfd stays with a process for ever."""
        status = self._directory.read_status()
        if status is None:
            return False
        if not status.replicas:  # it was stopped before it could start
            return True
        (command,) = status.replicas
        if command.state in REPLICA_TERMINAL:
            return True
        if command.pid is None:
            return False
        with suppress(OSError):  # it has just ended
            descriptor = os.pidfd_open(command.pid)
            try:
                if self._is_ours(command.pid):
                    if number in _LEAVING:  # before the signal: the supervisor is to know it when the command ends
                        with suppress(GpuschedError):  # it is over, or its disk is full
                            give(status, PassedOnOrder())
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
        return True


def exit_code(job: JobStatus) -> int:
    """Return the code of a shell: the command's own, 128 + its signal, 126 or 127 if it could not be started.

    A job that did not succeed is never 0, whatever code its command ended with when it was stopped.
    """
    (command,) = job.replicas
    code = 0 if command.exit is None else _code(command.exit)
    return code or int(job.state is not JobState.SUCCEEDED)


def _code(end: ExitReason) -> int:
    if end.kind == "spawn-failed":
        return _NOT_FOUND if _NO_SUCH_FILE in (end.message or "") else _NOT_EXECUTABLE
    if end.signal is not None:
        return _BY_SIGNAL + end.signal
    if end.code is not None:
        return end.code
    return _BY_SIGNAL + signal.SIGKILL if end.kind == "lost" else 0


def _stop_ourselves() -> None:
    """Stop as by Ctrl-Z, so that the shell sees it; this returns when we are continued (SIGCONT)."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
    signal.raise_signal(signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
