"""Processes of this host: start one, signal its group, learn how it ended, sleep until something happens.

It must not know states or restarts. Every replica leads a session and a process group of its own, so that one signal
reaches all that it forks; only what calls setsid itself flees from that, and the end of the job finds it (kernel.py).
An attached command joins the group of whoever started it instead, so that a terminal treats both as one; this process
then leaves the terminal's session, in which it could pass for a shell that looks after halted jobs.
"""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Final, Protocol

import msgspec

from gpusched.model.job import ProcessIdentity
from gpusched.supervisor.kernel import GUARD_GONE, descendants, die_with, inherited, start_time
from gpusched.supervisor.preload import Preload, ZygoteState
from gpusched.supervisor.spec import Start

__all__ = ["AttachedChild", "Children", "Death", "SpawnError", "Spawner", "Wakeup"]

_FINAL: Final = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENOEXEC, errno.ENAMETOOLONG)


class SpawnError(msgspec.Struct, frozen=True, kw_only=True):
    """A program could not be started; `message` names it and says why. `final`: another try would end alike."""

    message: str
    final: bool = False


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended: with `code`, or by `signal`; `ours` if it was SIGKILL and came from here."""

    pid: int
    code: int | None = None
    signal: int | None = None
    ours: bool = False


class Spawner(Protocol):
    """What the runner needs of an operating system."""

    def spawn(self, starts: Sequence[Start]) -> list[int | SpawnError]:
        """Start programs and return, for each, its pid or why it could not be started."""

    def send(self, pid: int, number: int) -> None:
        """Send a signal to a child that has not been reaped, and to what it started."""

    def deaths(self) -> list[Death]:
        """Return the children that ended since the last call, having killed what was left of their groups."""


class Children:
    """The children of this process. It must be the only code here that waits for children, and single-threaded.

    Single-threaded is what makes `preexec_fn` safe: no other thread can hold a lock at the fork. And it is the only way
    to set the death signal before the program runs without putting another program in between. A replica is forked by
    the zygote of `preload` where that can be; whichever way it was started, it is a child of this process.
    """

    def __init__(self, preload: Preload | None = None) -> None:
        self._preload = preload
        self._passed: list[int] = []
        self._running: set[int] = set()
        self._killed: set[int] = set()

    def spawn(self, starts: Sequence[Start]) -> list[int | SpawnError]:
        """Start each `spec.argv` in its `spec.cwd` as the leader of a session; return its pid or why there is none.

        It runs on those of its CPUs that this process may use, on all of these if it may use none. When this process
        dies, so does the child.
        """
        forked = self._fork(starts)
        return [forked.get(number) or self._start(start, start_new_session=True) for number, start in enumerate(starts)]

    def _fork(self, starts: Sequence[Start]) -> dict[int, int]:
        """Have the zygote fork what it can; return the pids of these, by their place among all."""
        preload = self._preload
        if preload is None or preload.state is not ZygoteState.READY:
            return {}
        places = [number for number, start in enumerate(starts) if preload.takes(start.spec)]
        pids = preload.fork([starts[number] for number in places]) if places else []
        forked = {number: pid for number, pid in zip(places, pids, strict=True) if pid is not None}
        self._running.update(forked.values())
        return forked

    def _start(
        self,
        start: Start,
        *,
        start_new_session: bool = False,
        group: int | None = None,
        ignored: Iterable[int] = (),
    ) -> int | SpawnError:
        spec, streams = start.spec, start.streams
        try:
            child = subprocess.Popen(
                spec.argv,
                env=start.env,
                cwd=spec.cwd,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                pass_fds=self._passed,
                start_new_session=start_new_session,
                process_group=group,
                preexec_fn=_preparation(spec.replica.cpus, ignored),  # noqa: PLW1509 (see the class)
            )
        except OSError as error:
            what = error.filename or spec.argv[0]
            return SpawnError(message=f"{os.fsdecode(what)}: {error.strerror}", final=error.errno in _FINAL)
        except (ValueError, subprocess.SubprocessError) as error:
            return SpawnError(message=f"{spec.argv[0]}: {error}")
        child.returncode = 0  # it is waited for here, not by Popen
        self._running.add(child.pid)
        return child.pid

    def send(self, pid: int, number: int) -> None:
        """Send a signal to the child `pid` and what it started; nothing if it was reaped, or may not be signalled."""
        if pid in self._running:
            if number == signal.SIGKILL:
                self._killed.add(pid)
            self._send(pid, number)

    def _send(self, pid: int, number: int) -> None:
        _signal_group(pid, number)

    def deaths(self) -> list[Death]:
        """Return the children that ended since the last call, having killed what was left of their groups.

        Orphans that this subreaper adopted are reaped as well, and not told.
        """
        found = []
        while (info := _ended_child()) is not None:
            pid, by_code = info.si_pid, info.si_code == os.CLD_EXITED
            if pid in self._running:
                _signal_group(pid, signal.SIGKILL)  # before reaping: until then the number is not given anew
                code, number = (info.si_status, None) if by_code else (None, info.si_status)
                found.append(Death(pid=pid, code=code, signal=number, ours=pid in self._killed))
                self._running.discard(pid)
                self._killed.discard(pid)
            elif self._preload is not None and pid == self._preload.pid:
                self._preload.ended(f"with code {info.si_status}" if by_code else f"by signal {info.si_status}")
            os.waitpid(pid, 0)
        return found


class AttachedChild(Children):
    """The one command of a job that behaves as if `launcher` had started it: it is in the launcher's process group.

    What the terminal sends to the group (Ctrl-C, Ctrl-Z) reaches it without us. What it starts may have groups of its
    own, as a shell's jobs have, and the launcher is in its group: so signals from here go to each process of the job.
    Signals that were ignored where the job was started (by nohup, or in the background of a script) stay so, and what
    was open there beyond the streams is the command's, but for the numbers that the streams have here.
    """

    _INHERITED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)

    def __init__(self, launcher: int, spared: Callable[[], int | None] = lambda: None) -> None:
        super().__init__()
        self._launcher, self._spared = launcher, spared
        self._passed = inherited()
        self._ignored = [number for number in self._INHERITED if signal.getsignal(number) is signal.SIG_IGN]

    def spawn(self, starts: Sequence[Start]) -> list[int | SpawnError]:
        """Start the one `spec.argv` in `spec.cwd` in the process group of the launcher, once.

        A parent in the same session and another group would keep the kernel from seeing that nobody is left to wake a
        halted command (an orphaned process group, setpgid(2)): so it leaves that session, and must lead no group.
        """
        (start,) = starts
        try:
            group = os.getpgid(self._launcher)
        except ProcessLookupError:
            gone = f"process {self._launcher}, for which it was to run, is gone"
            return [SpawnError(message=f"{start.spec.argv[0]}: {gone}")]
        pid = self._start(start, group=group, ignored=self._ignored)
        if isinstance(pid, int):
            while self._passed:
                os.close(self._passed.pop())
            os.setsid()
        return [pid]

    def _send(self, pid: int, number: int) -> None:  # noqa: ARG002 (all below this process is the command's)
        for one in descendants(os.getpid(), self._spared()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, number)
                if number == signal.SIGTERM:
                    os.kill(one, signal.SIGCONT)  # what Ctrl-Z has halted would not hear it


class Wakeup:
    """Sleep that ends early when a signal comes or the launcher ends. Signals do nothing else than to set a flag.

    `stops` counts SIGTERM and SIGINT. SIGHUP does nothing, by a handler: what is ignored would stay so in replicas.
    The handled signals are unblocked at the end, so that none that came earlier is lost.
    """

    _COUNTED: Final = (signal.SIGTERM, signal.SIGINT)
    _WAKING: Final = (signal.SIGCHLD, signal.SIGHUP, GUARD_GONE)

    def __init__(self, launcher: ProcessIdentity | None) -> None:
        self.stops = 0
        self._launcher = launcher
        self._selector = selectors.DefaultSelector()
        self._inner, outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._inner, selectors.EVENT_READ)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        for number in self._COUNTED:
            signal.signal(number, self._count)
        for number in self._WAKING:
            signal.signal(number, lambda _number, _frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*self._COUNTED, *self._WAKING))
        if launcher is not None:
            with contextlib.suppress(OSError):  # gone, or a kernel before 5.3: then sleeping only lasts longer
                self._selector.register(os.pidfd_open(launcher.pid), selectors.EVENT_READ)

    def sleep(self, seconds: float, also: int | None = None) -> None:
        """Return after `seconds`, or as soon as there was a signal, the launcher ended, or `also` can be read from."""
        if also is not None:
            self._selector.register(also, selectors.EVENT_READ)
        for key, _ in self._selector.select(seconds):
            if key.fd == self._inner:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._inner, 4096):
                        pass
            elif key.fd != also:  # a pidfd stays readable for ever
                self._selector.unregister(key.fd)
                os.close(key.fd)
        if also is not None:
            self._selector.unregister(also)

    def launcher_gone(self) -> bool:
        """Return whether the process that this job must not outlive has ended."""
        return self._launcher is not None and start_time(self._launcher.pid) != self._launcher.start

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1


def _preparation(cpus: tuple[int, ...], ignored: Iterable[int]) -> Callable[[], None]:
    """Return what the child does between fork and exec; everything it needs is at hand before the fork."""
    supervisor = os.getpid()
    usable = set(cpus) & os.sched_getaffinity(0)

    def prepare() -> None:
        die_with(supervisor)
        if usable:
            with contextlib.suppress(OSError):  # a CPU taken away in this moment must not fail the start
                os.sched_setaffinity(0, usable)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return prepare


def _ended_child() -> os.waitid_result | None:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it, or nobody of ours
        os.killpg(group, number)
