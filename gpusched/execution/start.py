"""Start and stop a job from outside: what a command or a daemon does to a supervisor it does not own.

An attempt is prepared (spec.json, and a nonce in guard.lock), then started by a guard that is given the nonce. Its
start can be cancelled as long as no guard has taken it; so a guard that comes late starts nothing.
"""

import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Final

import msgspec

from gpusched.errors import HostFault, NotFound, StillRuns
from gpusched.execution.directory import JobDirectory, initial_status
from gpusched.execution.guard_lock import BEGUN, guard_lock
from gpusched.execution.orders import StopOrder, give
from gpusched.execution.read_jobs import START_PATIENCE_S
from gpusched.execution.spec import JobSpec
from gpusched.interpreter import own_command
from gpusched.linux.processes import seconds_since_boot, start_time, wake
from gpusched.linux.regular_files import NotRegularError, last_lines, open_regular
from gpusched.model.job import ProcessIdentity
from gpusched.model.status import JobState, JobStatus

__all__ = [
    "abandon",
    "await_supervisor",
    "cancel_start",
    "files_option",
    "has_exited",
    "prepare",
    "spawn",
    "stop",
    "this_process",
    "why_not_started",
    "write_environ",
]

_POLL_S: Final = 0.01
_LITTLE_ROOM: Final = 1 << 16  # bytes; what was written amid a failure may have gone again
_FEW_FILES: Final = 8


def this_process() -> ProcessIdentity:
    """Return who is calling: as JobSpec.launcher, the process that a job must not outlive."""
    pid = os.getpid()
    return ProcessIdentity(pid=pid, start=start_time(pid) or 0)


def has_exited(process: ProcessIdentity | None) -> bool:
    """Return whether there was such a process, and it is gone."""
    return process is not None and start_time(process.pid) != process.start


def prepare(directory: JobDirectory, spec: JobSpec) -> str:
    """Write down the next attempt of the job and return its nonce; what is left of the status of the last one goes.

    Raises HostFault if that cannot be written, or if a guard of the job still lives.
    """
    nonce = secrets.token_hex(16)
    with _mapped(directory), guard_lock(directory) as descriptor:
        if descriptor is None:
            raise StillRuns(f"cannot start {spec.id}: it still runs", "stop it first")
        directory.status.unlink(missing_ok=True)
        directory.tmp.mkdir(mode=0o700, exist_ok=True)
        directory.write_spec(msgspec.structs.replace(spec, prepared_s=seconds_since_boot()))
        _write(descriptor, nonce.encode())
    return nonce


def files_option(files: tuple[int, int]) -> str:
    """Return the option of a guard that may open `files` files, softly and at the most. A forked one shows it, too."""
    return f"--files={files[0]},{files[1]}"


def spawn(
    directory: JobDirectory,
    nonce: str,
    environ: Mapping[str, str],
    *,
    attached: bool = False,
    files: tuple[int, int] | None = None,
) -> int:
    """Start a guard for the attempt that was prepared under `nonce` and return its pid, without waiting for anything.

    It gets nothing of the caller's but its working directory and `environ`, of which the PYTHON* variables are for the
    replicas alone; `attached`, it stays in the caller's session, in a new process group, and gets the caller's
    three streams. `files`: how many it may open, softly and at the most, None: as many as the caller. Raises HostFault.
    """
    path, log_flags = str(directory.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
    apart = {"setpgroup": 0} if attached else {"setsid": True}  # from the first moment on: Ctrl-C is not for the guard
    with _mapped(directory), _copied_streams() if attached else nullcontext(()) as streams:
        os.close(open_regular(directory.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT))  # raises the reason
        options = [f"--attached={','.join(map(str, streams))}"] if attached else []
        if files is not None:
            options.append(files_option(files))
        return os.posix_spawn(
            sys.executable,
            own_command("gpusched.supervisor", *options, path, nonce),
            environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(directory.supervisor_log), log_flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsigmask=[],
            **apart,
        )


def await_supervisor(directory: JobDirectory, guard: int, spec: JobSpec) -> int:
    """Return the supervisor's pid once it has written its first status; `guard` is the pid that spawn returned.

    Raises HostFault, and leaves the job behind as failed, if the guard ends before, or START_PATIENCE_S have passed.
    """
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        ended = _has_ended(guard)  # asked first: it may write its status and end between the two questions
        status = directory.read_status()
        if status is not None and status.supervisor_pid is not None:
            return status.supervisor_pid
        if ended:
            raise _did_not_start(directory, spec, why_not_started(directory))
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(guard, signal.SIGTERM)
            raise _did_not_start(directory, spec, f"no answer within {START_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)


def why_not_started(directory: JobDirectory) -> str:
    """Return what a guard that started nothing wrote last; on a full disk it could write nothing."""
    lines = last_lines(directory.supervisor_log, 1)
    if lines:
        return lines[0]
    with suppress(OSError):
        room = os.statvfs(directory.path)
        if room.f_bavail * room.f_bsize < _LITTLE_ROOM or (room.f_files and room.f_favail < _FEW_FILES):
            return f"it ended and wrote nothing, and there is hardly any room left in {directory.path}"
    return "it ended and wrote nothing"


def cancel_start(directory: JobDirectory) -> bool:
    """Make sure that no guard will start the attempt that was prepared last; False if one lives and may have done so.

    After True no process of the job is left. Whether there have been any: has_begun. Raises HostFault.
    """
    with _mapped(directory), suppress(FileNotFoundError), guard_lock(directory) as descriptor:
        if descriptor is None:
            return False
        if not os.pread(descriptor, len(BEGUN), 0).startswith(BEGUN):
            os.ftruncate(descriptor, 0)
        directory.environ.unlink(missing_ok=True)
    return True


def abandon(directory: JobDirectory) -> bool:
    """Cancel the start of the attempt that was prepared last, or kill the job; True if there is nothing of it to read.

    Between the two is the moment in which a guard lives and its supervisor reads no order yet: that is waited for,
    START_PATIENCE_S at most. Raises NotFound if the job has just ended, and HostFault.
    """
    deadline = time.monotonic() + START_PATIENCE_S
    while not cancel_start(directory):
        status = directory.read_status()
        if status is not None and status.supervisor_pid is not None:
            stop(status, kill=True)
            return False
        if time.monotonic() > deadline:
            raise HostFault(f"cannot end {directory.path.name}: no answer within {START_PATIENCE_S:.0f} s", "stop it")
        time.sleep(_POLL_S)
    return not os.path.lexists(directory.status)


def write_environ(directory: JobDirectory, environ: Mapping[str, str]) -> None:
    """Save the environment for a guard that is started with --environment; only its owner can read it.

    Raises HostFault.
    """
    content = b"\0".join(os.fsencode(f"{name}={value}") for name, value in environ.items())
    with _mapped(directory):
        directory.environ.unlink(missing_ok=True)
        descriptor = os.open(directory.environ, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def stop(job: JobStatus, message: str = "stopped on request", *, kill: bool = False) -> None:
    """Ask a job to stop: SIGTERM to its replicas, SIGKILL after its grace or, with `kill`, at once.

    `message` names who wants it. Where that cannot be written, as on a full disk, signals ask for the same without it;
    `kill` is two of two kinds, as two of one kind that wait for a process are one. It returns at once; the job's status
    shows when it is over. Raises NotFound if the job is over or has no supervisor, and HostFault.
    """
    try:
        give(job, StopOrder(message=message, kill=kill))
    except HostFault:
        if job.supervisor_pid is None:
            raise
        _signal_stop(job, job.supervisor_pid, kill=kill)


def _signal_stop(job: JobStatus, pid: int, *, kill: bool) -> None:
    try:
        for number in (signal.SIGTERM, signal.SIGINT)[: 1 + kill]:
            os.kill(pid, number)
        wake(pid)
    except ProcessLookupError:
        raise NotFound(f"{job.id} has just ended", "see `gpusched ps`") from None
    except PermissionError:
        raise HostFault(f"{job.id} belongs to another user", "ask its owner to stop it") from None


@contextmanager
def _copied_streams() -> Iterator[tuple[int, ...]]:
    """Yield copies of the three streams, /dev/null for one that is closed, under numbers that nothing here has.

    A child inherits them: what the caller's shell has opened as 3, 4 and so on is the command's.
    """
    copies: list[int] = []
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        copies += (fcntl.fcntl(stream if _is_open(stream) else nothing, fcntl.F_DUPFD, 3) for stream in range(3))
        yield tuple(copies)
    finally:
        for descriptor in (nothing, *copies):
            os.close(descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def _mapped(directory: JobDirectory) -> Iterator[None]:
    job = directory.path.name
    try:
        yield
    except NotRegularError as error:
        raise HostFault(f"cannot start {job}: {error.filename}: {error.strerror}", "move it away") from None
    except OSError as error:
        where = error.filename or directory.path
        raise HostFault(f"cannot start {job}: {where}: {error.strerror}", "make room or make it writable") from None
    except UnicodeEncodeError as error:
        raise HostFault(f"cannot start {job}: {error.object!r} is no text in UTF-8", "rename it") from None
    except ValueError as error:
        raise HostFault(f"cannot start {job}: {error}", "see what `env` prints") from None


def _write(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)


def _has_ended(guard: int) -> bool:
    try:
        return os.waitpid(guard, os.WNOHANG)[0] == guard
    except ChildProcessError:  # a caller that ignores SIGCHLD has no zombies to wait for
        return True


def _did_not_start(directory: JobDirectory, spec: JobSpec, why: str) -> HostFault:
    """Leave the job behind as failed, and return the error to raise."""
    message = f"the supervisor of {spec.id} did not start: {why}"
    status = msgspec.structs.replace(
        initial_status(directory, spec), state=JobState.FAILED, message=message, ended=time.time()
    )
    try:
        directory.write_status(status)
    except OSError as error:
        return HostFault(f"{message}; {directory.status}: {error.strerror}", "make room or make it writable")
    return HostFault(message, f"see {directory.supervisor_log}")
