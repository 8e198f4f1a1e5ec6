"""Processes of this host: start one, signal its session, learn how it ended.

It must not know states or restarts. Every replica leads a session and a process group, so that one signal reaches all
that it forks. It has ended when its own process and all others of its session have. What calls setsid leaves it: its
parent is to end it, as torchrun does with its children; if the parent is gone, it is a stray, of the job as a whole.
"""

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpusched.execution.spec import Start
from gpusched.linux.attributes import apply_attributes, cpus_of_replica
from gpusched.linux.processes import Process, below, boot_ticks, command_line, die_with, has_children, still_below
from gpusched.zygote.client import ZygoteClient, ZygoteState

__all__ = ["Children", "ProcessExit", "Spared", "SpawnError"]

_KILL_PATIENCE_S: Final = 5.0
"""After that, what SIGKILL has not ended holds up its replica no longer; the end of the job tries again."""

_READINGS: Final = 10
_MOST_DESCRIBED: Final = 3
_LONGEST_COMMAND: Final = 100

_FINAL: Final = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENOEXEC, errno.ENAMETOOLONG)


Spared = Callable[[], Callable[[Process], bool]]


class SpawnError(msgspec.Struct, frozen=True, kw_only=True):
    """A program could not be started; `message` names it and the reason. `final`: another try would end alike."""

    message: str
    final: bool = False


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended: with `code`, or by `signal`; `ours` if it was SIGKILL and came from here.

    `cpu_s`: the CPU time of its own and of those that it has waited for.

    `left` describes what else of its session still runs: with any left, the same comes again once all have ended.
    """

    pid: int
    code: int | None = None
    signal: int | None = None
    ours: bool = False
    cpu_s: float = 0.0
    left: str = ""


class Children:
    """The children of this process. It must be the only code here that waits for children, and single-threaded.

    Single-threaded is what makes `preexec_fn` safe: no other thread can hold a lock at the fork. And it is the only way
    to set the death signal before the program runs without putting another program in between. A replica is forked by
    the zygote of `preload` where that can be; whichever way it was started, it is a child of this process. `spared`
    gives, at each call, a predicate: whether a process is none of the job's, with all below it.
    """

    def __init__(self, preload: ZygoteClient | None = None, spared: Spared = lambda: lambda _: False) -> None:
        self._preload, self._spared = preload, spared
        self._passed: list[int] = []
        self._running: set[int] = set()
        self._left: dict[int, ProcessExit] = {}
        self._killed: dict[int, float] = {}
        self._asked: set[tuple[int, int]] = set()
        self._there_before: set[tuple[int, int]] = set()
        self._sweep_began: int | None = None

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
                preexec_fn=_preparation(start, ignored),  # noqa: PLW1509 (see the class)
            )
        except OSError as error:
            what = error.filename or spec.argv[0]
            return SpawnError(message=f"{os.fsdecode(what)}: {error.strerror}", final=error.errno in _FINAL)
        except (ValueError, subprocess.SubprocessError) as error:
            return SpawnError(message=f"{spec.argv[0]}: {error}")
        child.returncode = 0  # it is waited for here, not by Popen
        self._running.add(child.pid)
        return child.pid

    def ask(self, pid: int, *, alone: bool) -> None:  # noqa: ARG002 (no terminal signals its group)
        """Send SIGTERM to all of the session of the child `pid`, or to what is left of it.

        `alone`: what may have ended the child itself was a signal to it alone.
        """
        if pid in self._running or pid in self._left:
            processes = self._below()
            if not self._asked:
                self._there_before.update(one.identity for one in processes)
            self._ask(self._session(pid, processes))

    def kill(self, pid: int) -> str:
        """Send SIGKILL to all of the session of the child `pid`; return a description of the processes that got it."""
        if pid not in self._running and pid not in self._left:
            return ""
        self._killed.setdefault(pid, time.monotonic())
        session = self._session(pid, self._below())
        text = _described(session)  # of a process that is being killed no command can be read
        self._signal(session, signal.SIGKILL)
        return text

    def reap(self) -> list[ProcessExit]:
        """Return the children that ended since the last call, and those of whose session the last has ended.

        Orphans that this subreaper adopted are reaped as well, and not returned.
        """
        fresh = self._reap()
        if not fresh and not self._left:
            return []
        processes, exits = self._below(), []
        if not all(self._session(death.pid, processes) for death in (*fresh, *self._left.values())):
            processes = self._still_below()  # an end gives a share back, so it must be certain
        for death in (*fresh, *self._left.values()):
            session = self._session(death.pid, processes)
            if not session or self._is_given_up(death.pid):
                self._left.pop(death.pid, None)
                self._killed.pop(death.pid, None)
                exits.append(death)
            elif death.pid not in self._left:
                self._left[death.pid] = death
                exits.append(msgspec.structs.replace(death, left=_described(session)))
            elif death.pid in self._killed:  # what was forked in the moment of the first
                self._signal(session, signal.SIGKILL)
        return exits

    def strays(self) -> str:
        """Return a description of the processes that belong to no child any more, an empty text if there are none."""
        return _described(self._strays(self._below()) or self._strays(self._still_below()))

    def ask_strays(self) -> str:
        """Send SIGTERM to each session of strays, once; return a description of all strays.

        Not to what still has a parent below this process: that is the one to end it. And not to what began after the
        first SIGTERM: it may be saving what the others were asked to save. A start is known to 10 ms only (proc(5)), so
        what was there before is remembered.
        """
        if self._sweep_began is None:
            self._sweep_began = boot_ticks()
        strays = self._strays(self._below())
        if not (strays or self._running or self._left):
            strays = self._strays(self._still_below())
        for root in strays:
            identity = root.identity
            is_old = identity in self._there_before or root.start < self._sweep_began
            if root.parent == os.getpid() and is_old and identity not in self._asked:
                self._ask([one for one in strays if one.session == root.session])
        return _described(strays)

    def _below(self) -> list[Process]:
        return below(os.getpid(), self._spared())

    def _still_below(self) -> list[Process]:
        """Return the same and what `below` can miss, for what is decided once.

        What has just ended is not shown: the next reading finds what it left. Only where something forks and ends all
        the while, each reading meets another that is dead, and that stands for the one that lives.
        """
        if not has_children():
            return []
        found, seen_dead = list[Process](), set[tuple[int, int]]()
        for _ in range(_READINGS):
            found = still_below(os.getpid(), seen_dead, self._spared())
            if not any(one.dead for one in found):
                break
        return found

    def _sessions(self, pid: int) -> set[int]:
        """Return the sessions whose processes are the child `pid` and what it started, as far as they are below us."""
        return {pid}

    def _session(self, pid: int, processes: Iterable[Process]) -> list[Process]:
        sessions = self._sessions(pid)
        return [one for one in processes if one.session in sessions]

    def _strays(self, processes: Iterable[Process]) -> list[Process]:
        """Return what is neither of a child's session nor below such a process, parents first."""
        children = {*self._running, *self._left}
        sessions = {session for pid in children for session in self._sessions(pid)}
        if self._preload is not None and self._preload.pid is not None:
            sessions.add(self._preload.pid)
        known, strays = set(children), []
        for one in processes:
            if one.session in sessions or one.parent in known:
                known.add(one.pid)
            else:
                strays.append(one)
        return strays

    def _ask(self, processes: Sequence[Process]) -> None:
        self._asked.update(one.identity for one in processes)
        self._signal(processes, signal.SIGTERM)
        self._signal(processes, signal.SIGCONT)  # what is halted would not handle it

    def _signal(self, processes: Iterable[Process], number: int) -> None:
        """Signal whole groups: so it reaches what is forked at this moment, too."""
        for group in {one.group for one in processes}:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left in it, or nothing of ours
                os.killpg(group, number)

    def _is_given_up(self, pid: int) -> bool:
        return pid in self._killed and time.monotonic() - self._killed[pid] > _KILL_PATIENCE_S

    def _reap(self) -> list[ProcessExit]:
        """Wait for all that has ended, and return how children of ours did."""
        found = []
        while (info := _ended_child()) is not None:
            pid, by_code = info.si_pid, info.si_code == os.CLD_EXITED
            if self._preload is not None and pid == self._preload.pid:
                self._preload.ended(f"with code {info.si_status}" if by_code else f"by signal {info.si_status}")
            used = os.wait4(pid, 0)[2]
            if pid in self._running:
                code, number = (info.si_status, None) if by_code else (None, info.si_status)
                cpu_s, ours = used.ru_utime + used.ru_stime, pid in self._killed
                found.append(ProcessExit(pid=pid, code=code, signal=number, ours=ours, cpu_s=cpu_s))
                self._running.discard(pid)
        return found


def _preparation(start: Start, ignored: Iterable[int]) -> Callable[[], None]:
    """Return what the child does between fork and exec; everything it needs is at hand before the fork."""
    supervisor, attributes = os.getpid(), start.attributes
    cpus = cpus_of_replica(start.spec.replica.cpus, attributes)

    def prepare() -> None:
        die_with(supervisor)
        if cpus:
            with contextlib.suppress(OSError):  # a CPU taken away in this moment must not fail the start
                os.sched_setaffinity(0, cpus)
        if attributes is not None:
            apply_attributes(attributes)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return prepare


def _ended_child() -> os.waitid_result | None:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def _described(processes: Sequence[Process]) -> str:
    """Return pids and commands for a log: `4711 (python train.py), 4712 (sh) and 3 more`."""
    texts = [f"{one.pid} ({_command(one.pid)})" for one in processes[:_MOST_DESCRIBED]]
    more = f" and {len(processes) - len(texts)} more" if len(processes) > len(texts) else ""
    return f"{', '.join(texts)}{more}"


def _command(pid: int) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in command_line(pid))
    return text if len(text) <= _LONGEST_COMMAND else f"{text[: _LONGEST_COMMAND - 3]}..."
