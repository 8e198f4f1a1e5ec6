"""The supervisor's side of a zygote: start it, read its progress, have it fork replicas. Nothing here waits for long.

The zygote (server.py) makes starts fast and nothing else depends on it: whenever it cannot serve, replicas are started
by exec. A fork may pass its gate only after its pid is known here; the gate of an unknown one is closed, by
which it ends, so that no replica is ever started twice.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import IO, Final

import msgspec

from gpusched.environment import threads
from gpusched.execution.directory import JobDirectory
from gpusched.execution.spec import JobSpec, Start
from gpusched.linux.attributes import cpus_of_replica
from gpusched.linux.processes import die_with, halted
from gpusched.linux.regular_files import open_regular
from gpusched.model.plan import ReplicaSpec
from gpusched.zygote.preload import Preload, import_environment, imported, preload_of
from gpusched.zygote.protocol import (
    Forked,
    ForkRequest,
    Loading,
    Ready,
    Refused,
    ZygoteMessage,
    as_bytes,
    command_of,
    settles_at_start,
)

__all__ = ["ZygoteClient", "ZygoteState", "start_zygote"]

_LOAD_PATIENCE_S: Final = 180.0
_FORK_PATIENCE_S: Final = 2.0
_BUSY_PATIENCE_S: Final = 20.0
_MOST_BYTES: Final = 1 << 16
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class ZygoteState(StrEnum):
    """loading -> ready -> gone, or gone at once; where it is gone, replicas are started by exec."""

    LOADING = "loading"
    READY = "ready"
    GONE = "gone"


class ZygoteClient:
    """The zygote of one job, a child of this process, which must be a subreaper, and single-threaded.

    `pid` is None unless the zygote has to be waited for, `doing` what it does before it is ready, and `deadline` when
    it is given up, on the monotonic clock. With `safe_path` it runs as `python -P`, as the replicas that it is for do.
    """

    def __init__(self, modules: tuple[str, ...], *, safe_path: bool = False) -> None:
        self.modules, self._safe_path = modules, safe_path
        self.state = ZygoteState.GONE
        self.pid: int | None = None
        self.doing: str | None = None
        self.deadline: float | None = None
        self._control: socket.socket | None = None
        self._settled: dict[str, str] = {}
        self._started = 0.0
        self._steps: list[tuple[str, str]] = []
        self._end_reported = False

    def start(self, environ: Mapping[str, str], tmp: Path, cwd: str, log: Path) -> None:
        """Start the zygote in the directory `cwd`, with the job's environment and its output in `log`."""
        env = import_environment(environ, {"TMPDIR": str(tmp)})
        self._settled = settles_at_start(env)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._started = time.monotonic()
        options = ["-P"] if self._safe_path else []
        argv = [sys.executable, *options, "-m", "gpusched.zygote.server", str(theirs.fileno()), *self.modules]
        try:
            with theirs, os.fdopen(open_regular(log, _APPEND), "ab") as output:
                self.pid = self._forked(env, argv, cwd, theirs, output) or _executed(env, argv, cwd, theirs, output)
        except (OSError, subprocess.SubprocessError) as error:
            self._leave(f"could not start: {error}")
            return
        self.state, self.doing = ZygoteState.LOADING, "preloading"
        self.deadline = self._started + _LOAD_PATIENCE_S

    def _forked(
        self, env: Mapping[str, str], argv: Sequence[str], cwd: str, theirs: socket.socket, output: IO[bytes]
    ) -> int | None:
        """Return the pid of a zygote that is a fork of this process, if this has imported what it is for."""
        have = imported()
        if have is None or not have.serves(Preload(self.modules, self._safe_path, cwd), env):
            return None
        from gpusched.zygote.preloaded import fork_zygote

        return fork_zygote(have, env, argv, theirs, output.fileno())

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when there is something to `receive`, None if there is none."""
        return None if self._control is None else self._control.fileno()

    def receive(self) -> None:
        """Handle the messages of the zygote, without waiting; give up one that has been loading for too long."""
        while self._control is not None:
            try:
                self._control.setblocking(False)
                packet = self._control.recv(_MOST_BYTES)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            self._take(_understood(packet))
        if self.deadline is not None and time.monotonic() > self.deadline:
            self._leave(f"did not finish {self.doing} within {_LOAD_PATIENCE_S:.0f} s")

    def steps(self) -> list[tuple[str, str]]:
        """Return what has become of the zygote since the last call, each step with its text."""
        steps, self._steps = self._steps, []
        return steps

    def takes(self, spec: ReplicaSpec) -> bool:
        """Return whether a fork can stand for the replica, now or once all is loaded.

        Where it would not even start, exec is to report so.
        """
        if self.state is ZygoteState.GONE:
            return False
        command = command_of(spec.argv, sys.executable, {**os.environ, **spec.env}.get("PATH"))
        same = settles_at_start(spec.env).items() <= self._settled.items()
        if command is None or not same or not os.access(spec.cwd, os.X_OK):
            return False
        if command.safe_path != self._safe_path:
            return False
        return command.module or os.path.isfile(os.path.join(spec.cwd, command.target))  # noqa: PTH113, PTH118 (never raises)

    def fork(self, starts: Sequence[Start]) -> list[int | None]:
        """Have replicas forked, let them begin, and return their pids: they are children of this process.

        None where there is none, so that another way must be taken. It takes milliseconds for each; a zygote that is
        halted is ended after 2 s, and any after 20 s.
        """
        gates: list[tuple[int, int]] = []
        memories: list[int] = []
        try:
            if not self._open(gates, memories, len(starts)):
                return [None] * len(starts)
            answer = self._ask(starts, [theirs for theirs, _ in gates], memories)
            if not isinstance(answer, Forked):
                return [None] * len(starts)
            for pid, start, (_, ours) in zip(answer.pids, starts, gates, strict=True):
                if pid is not None:
                    os.write(ours, b"x")
                else:
                    self._add_step("busy", f"the zygote could not fork {start.spec.replica.name}: {answer.message}")
            return list(answer.pids)
        finally:
            for descriptor in (*chain.from_iterable(gates), *memories):
                os.close(descriptor)

    def _open(self, gates: list[tuple[int, int]], memories: list[int], number: int) -> bool:
        """Open a pipe and a memory file for each replica; return False where fewer files may be open."""
        try:
            while len(memories) < number:
                gates.append(os.pipe2(os.O_CLOEXEC))
                memories.append(os.memfd_create("fork request", os.MFD_CLOEXEC))
        except OSError as error:
            self._add_step("busy", f"{number} replicas are executed, not forked: {error.strerror} (ulimit -n)")
            return False
        return True

    def _request(self, start: Start) -> ForkRequest:
        return ForkRequest(
            argv=tuple(map(os.fsencode, start.spec.argv)),
            env=as_bytes(start.env),
            cwd=os.fsencode(start.spec.cwd),
            cpus=tuple(sorted(cpus_of_replica(start.spec.replica.cpus, start.attributes))),
            threads=threads(start.env),
            parent=os.getpid(),
            attributes=start.attributes,
        )

    def _ask(self, starts: Sequence[Start], gates: Sequence[int], memories: Sequence[int]) -> ZygoteMessage | None:
        if self._control is None:
            return None
        try:
            self._control.settimeout(_FORK_PATIENCE_S)
            sent: list[int] = []
            for start, gate, memory in zip(starts, gates, memories, strict=True):
                os.write(memory, msgspec.msgpack.encode(self._request(start)))
                sent += (memory, *start.streams, gate)
            socket.send_fds(self._control, [b"%d" % len(starts)], sent)
            return self._answer(self._control)
        except OSError as error:
            self._leave(f"does not answer: {error.strerror or error}")
        return None

    def _answer(self, control: socket.socket) -> ZygoteMessage | None:
        """Wait for the zygote's answer to a request. Raises OSError.

        One that is halted is given up soon; one that runs gets the time that many busy processes may cost it.
        """
        deadline = time.monotonic() + _BUSY_PATIENCE_S
        while True:
            try:
                packet = control.recv(_MOST_BYTES)
                break
            except TimeoutError:
                late = time.monotonic() > deadline
                if self.pid is None or late or halted([self.pid], self.pid):
                    patience = _BUSY_PATIENCE_S if late else _FORK_PATIENCE_S
                    self._leave(f"did not fork a replica within {patience:.0f} s")
                    return None
        answer = _understood(packet)
        if not isinstance(answer, Forked):
            self._take(answer)
        return answer

    def ended(self, how: str) -> None:
        """Take in that the process of the zygote has ended, `how` it did, and that it is about to be reaped."""
        self.receive()  # its last messages
        doing = f" while {self.doing}" if self.doing else ""
        self.pid = None
        self._leave(f"ended {how}{doing}")

    def close(self) -> None:
        """End the zygote: nothing is to be started any more."""
        self._end_reported = True
        self._end()

    def _take(self, message: ZygoteMessage | None) -> None:
        match message:
            case Loading():
                self.doing = f"preloading {message.module}"
                self._add_step("loading", self.doing)
            case Ready():
                self.state, self.doing, self.deadline = ZygoteState.READY, None, None
                took = time.monotonic() - self._started
                self._add_step("ready", f"preloaded {', '.join(self.modules)} in {took:.1f} s: replicas are forked")
            case Refused():
                self._leave(f"is not used: {message.message}")
            case None:
                self._end()  # its parent is about to learn how it ended

    def _add_step(self, step: str, text: str) -> None:
        self._steps.append((step, text))

    def _leave(self, why: str) -> None:
        """Do without the zygote from now on, and report why, once."""
        self._end()
        if not self._end_reported:
            self._end_reported = True
            self._add_step("gone", f"the zygote {why}; from now on each replica imports for itself")

    def _end(self) -> None:
        self.state, self.deadline = ZygoteState.GONE, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def start_zygote(directory: JobDirectory, spec: JobSpec) -> ZygoteClient | None:
    """Start what imports what all replicas need, if there is something, and a replica that a fork can stand for.

    Not before this process handles its signals: like a replica, the zygote is to inherit none that is ignored.
    """
    found = preload_of(spec, os.environ)
    if found is None:
        return None
    preload, _ = found
    zygote = ZygoteClient(preload.modules, safe_path=preload.safe_path)
    zygote.start(os.environ, directory.tmp, preload.cwd, directory.log("zygote"))
    return zygote


def _executed(env: Mapping[str, str], argv: Sequence[str], cwd: str, theirs: socket.socket, output: IO[bytes]) -> int:
    me = os.getpid()
    child = subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        preexec_fn=lambda: die_with(me),  # noqa: PLW1509 (see Children)
    )
    child.returncode = 0  # Children waits for it
    return child.pid


def _understood(packet: bytes) -> ZygoteMessage | None:
    """Return the zygote's message, None if it has ended. What is none of its messages, a module wrote to its socket."""
    if not packet:
        return None
    try:
        message: ZygoteMessage = msgspec.msgpack.decode(packet, type=ZygoteMessage)
    except msgspec.MsgspecError:
        return Refused(message="a module has written to its socket")
    return message
