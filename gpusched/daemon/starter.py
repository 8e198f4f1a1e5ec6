"""How the daemon starts a job's guard: apart from itself, so that its own end, and its sandbox, are nothing to the job.

The main process of a systemd unit asks the user's service manager for one unit for each job, named
gpusched-JOB-NONCE (docs/decisions/0009-jobs-run-in-units-of-their-own.md). Elsewhere a new session will do.
"""

import os
import re
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gpusched.daemon.fork_servers import ForkServers
from gpusched.errors import HostFault
from gpusched.execution.directory import JobDirectory
from gpusched.execution.start import spawn, write_environ
from gpusched.interpreter import own_command

__all__ = ["Spawn", "fork_servers", "is_unit", "raise_limit", "starter"]

Spawn = Callable[[JobDirectory, str, Mapping[str, str]], int | None]
"""Starts the guard of a prepared attempt in an environment; its pid, or None where another process is its parent."""

_PATIENCE_S: Final = 1.5
"""How long the service manager may take; the daemon answers no client meanwhile, and a client waits 2 s."""

_PAUSE_S: Final = 10.0
"""How long a service manager that did not answer is not asked again: one silence is enough for many jobs."""

_MOST_FILES: Final = 1 << 20

_NOT_IN_UNITS: Final = re.compile(r"[^A-Za-z0-9_.-]")
"""What no unit may have in its name (systemd.unit(5)): the brackets of a member of an array."""

_STOP_MARGIN_S: Final = 15
"""What guard and supervisor may take on top of the grace of the replicas."""


def starter(environ: Mapping[str, str], limit: tuple[int, int]) -> Spawn:
    """Return what starts guards for a daemon with the environment `environ`.

    Their jobs may open `limit` files, as if this daemon had not raised it: select(2) knows no more than 1024. A guard
    sets it itself: set from here it could come after the first process of the job.
    """
    return _Units(environ) if is_unit(environ) else partial(spawn, files=limit)


def raise_limit() -> tuple[int, int]:
    """Let this process open as many files as it may; return the soft and the hard limit that it had.

    Every peer is one, and ZeroMQ ends the whole process when it cannot let in one more (src/ipc_listener.cpp).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft, hard


def fork_servers(environ: Mapping[str, str], limit: tuple[int, int]) -> ForkServers:
    """Return what forks guards where starts come quickly, with `limit` files; none for a unit, whose jobs are units."""
    return ForkServers(None if is_unit(environ) else environ, limit)


def is_unit(environ: Mapping[str, str]) -> bool:
    """Return whether systemd started this very process as a unit: all that a shell starts inherits INVOCATION_ID.

    WATCHDOG_PID shows it too where systemd is older than 248.
    """
    me = str(os.getpid())
    return "INVOCATION_ID" in environ and me in (environ.get("SYSTEMD_EXEC_PID"), environ.get("WATCHDOG_PID"))


class _Units:
    """Starts each guard in a new unit, with nothing of the daemon's environment `own`."""

    def __init__(self, own: Mapping[str, str]) -> None:
        wanted = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "PATH")
        self._own = {name: own[name] for name in wanted if name in own}
        self._ask_again = 0.0

    def __call__(self, directory: JobDirectory, nonce: str, environ: Mapping[str, str]) -> None:
        """Start a guard. Raises HostFault; after that the manager may still start it later: call the attempt off."""
        if time.monotonic() < self._ask_again:
            raise _refused(directory, "it did not answer a moment ago")
        write_environ(directory, environ)
        try:
            ended = subprocess.run(
                _command(directory, nonce),
                env=self._own,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._ask_again = time.monotonic() + _PAUSE_S
            raise _refused(directory, f"no answer within {_PATIENCE_S:.0f} s") from None
        except OSError as error:
            raise _refused(directory, f"systemd-run: {error.strerror}") from None
        if ended.returncode != 0:
            why = ended.stderr.decode(errors="replace").strip()
            raise _refused(directory, why or f"systemd-run ended with code {ended.returncode}")


def _command(directory: JobDirectory, nonce: str) -> list[str]:
    """Return the command that asks for the unit.

    At a stop only the guard gets SIGTERM, and it ends its job in order. One replica that the kernel kills for want of
    memory is the supervisor's matter, not the end of the unit. In a command, the manager replaces what follows a `$`.
    """
    grace = directory.read_spec().stop_grace_s + _STOP_MARGIN_S
    properties = {
        "KillMode": "mixed",
        "TimeoutStopSec": f"{grace:.0f}",
        "OOMPolicy": "continue",
        "StandardOutput": f"append:{directory.supervisor_log}",
        "StandardError": f"append:{directory.supervisor_log}",
    }
    guard = own_command("gpusched.supervisor", "--environment", str(directory.path), nonce)
    return [
        "systemd-run",
        *("--user", "--quiet", "--collect", "--service-type=exec"),
        f"--unit=gpusched-{_NOT_IN_UNITS.sub('.', directory.path.name)}-{nonce}",
        f"--description=gpusched: {directory.path.name}",
        *(f"--property={name}={value}" for name, value in properties.items()),
        "--",
        *(word.replace("$", "$$") for word in guard),
    ]


def _refused(directory: JobDirectory, why: str) -> HostFault:
    return HostFault(
        f"{directory.path.name}: the user's service manager starts no unit for it: {why}",
        "let it run without a login: loginctl enable-linger",
    )
