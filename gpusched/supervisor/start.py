"""Start and stop a job from outside: what a command or a daemon does to a supervisor it does not own."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from gpusched.errors import HostFault, NotFound
from gpusched.model.job import ProcessIdentity
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.supervisor.jobdir import START_PATIENCE_S, JobDirectory, is_alive, last_lines, queued
from gpusched.supervisor.kernel import start_time
from gpusched.supervisor.spec import JobSpec

__all__ = ["start", "stop", "this_process"]

_LOOK_EVERY_S: Final = 0.01


def this_process() -> ProcessIdentity:
    """Return who is calling: as JobSpec.launcher, the process that a job must not outlive."""
    pid = os.getpid()
    return ProcessIdentity(pid=pid, start=start_time(pid) or 0)


def start(directory: JobDirectory, spec: JobSpec, environ: Mapping[str, str]) -> int:
    """Start the job's supervisor in a session of its own and return its pid once it has written its first status.

    `environ` is what the replicas inherit, under their own `env`. The guard above the supervisor is a child of the
    caller: one that lives long reaps it when the job is over. Raises HostFault if the supervisor does not come up.
    """
    try:
        directory.write_spec(spec)
        guard = _spawn(directory, environ)
    except OSError as error:
        raise HostFault(f"cannot start {spec.id}: {error}", f"see that {directory.path} can be written") from None
    except UnicodeEncodeError as error:
        raise HostFault(f"cannot start {spec.id}: {error.object!r} is no text in UTF-8", "rename it") from None
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        ended = _has_ended(guard)  # asked first: it may write its status and end between the two questions
        status = directory.read_status()
        if status is not None and status.supervisor_pid is not None:
            return status.supervisor_pid
        if ended:
            words = last_lines(directory.supervisor_log, 1) or ["it ended without a word"]
            raise _did_not_start(directory, spec, words[0])
        if time.monotonic() > deadline:
            os.kill(guard, signal.SIGTERM)
            raise _did_not_start(directory, spec, f"no answer within {START_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)


def stop(job: JobStatus) -> None:
    """Ask a job to stop: SIGTERM to its replicas, SIGKILL after its grace. A second request kills them at once.

    It returns at once; the job's status tells when it is over. Raises NotFound if the job is over or nobody runs it.
    """
    pid = job.supervisor_pid
    if pid is None or job.state in JOB_TERMINAL or not is_alive(job):
        raise NotFound(f"{job.id} is not running: it is {job.state}", "see `gpusched status` for the jobs that are")
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        raise NotFound(f"{job.id} has just ended", "see `gpusched status`") from None
    except PermissionError:
        raise HostFault(f"{job.id} belongs to another user", "ask its owner to stop it") from None


def _spawn(directory: JobDirectory, environ: Mapping[str, str]) -> int:
    """Start the guard with nothing of the caller's but its working directory, from which it may have been imported."""
    log_flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "gpusched.supervisor", str(directory.path)],
        environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(directory.supervisor_log), log_flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=[],
        setsid=True,  # from the first moment on, so that Ctrl-C reaches the job by way of the caller only
    )


def _has_ended(guard: int) -> bool:
    try:
        return os.waitpid(guard, os.WNOHANG)[0] == guard
    except ChildProcessError:  # a caller that ignores SIGCHLD has no zombies to wait for
        return True


def _did_not_start(directory: JobDirectory, spec: JobSpec, why: str) -> HostFault:
    """Leave the job behind as failed, and return what to tell."""
    message = f"the supervisor of {spec.id} did not start: {why}"
    status = msgspec.structs.replace(queued(directory, spec), state=JobState.FAILED, message=message, ended=time.time())
    try:
        directory.write_status(status)
    except OSError as error:
        message = f"{message}; {directory.status}: {error.strerror}"
    return HostFault(message, f"see {directory.supervisor_log}")
