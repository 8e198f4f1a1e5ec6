"""The daemon of this user, which holds the queue: start, stop and check it, and drain devices. Jobs go on without it.

All functions raise NoDaemon for a daemon that does not answer or is of another version, and HostFault.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Annotated, Final, NoReturn

import msgspec

import gpusched
from gpusched.api.validation import require_type
from gpusched.control.client import (
    Absent,
    Client,
    Unanswered,
    connect_or_start,
    daemon_environment,
    daemon_pid,
)
from gpusched.control.messages import Drain, Drained, Ping, Pong, Shutdown
from gpusched.control.place import control_socket, is_locked, listener
from gpusched.errors import HostFault, NoDaemon, ProtocolError
from gpusched.execution.relatives import is_daemon
from gpusched.interpreter import own_command
from gpusched.linux.processes import start_time
from gpusched.settings import load_settings, queue_settings

__all__ = ["DaemonState", "Drained", "drain", "run", "start", "state", "stop", "undrain"]

_END_PATIENCE_S: Final = 10.0
_Text = Annotated[str, msgspec.Meta(max_length=1000)]  # of a request to the daemon


class DaemonState(Pong, frozen=True, kw_only=True, tag="pong"):
    """The daemon as it answered, and the `socket` it listens at. `problems`: what is wrong with it, in sentences."""

    socket: str


def run() -> NoReturn:
    """Become the daemon: this process is replaced, and nothing of it is left in memory."""
    environ = daemon_environment(load_settings(os.environ))
    sys.stdout.flush()
    os.chdir("/")
    os.execve(sys.executable, own_command("gpusched.daemon"), environ)  # noqa: S606


def start() -> bool:
    """Return whether a daemon had to be started; it serves by then. Raises NoDaemon for one that hangs."""
    settings = load_settings(os.environ)
    if listener(control_socket(settings)) is not None:
        try:
            with Client(settings) as client:
                client.ask(Ping())
        except Absent:  # the one that was there has just ended
            pass
        except Unanswered as error:
            if not error.gone:
                raise
        else:
            return False
    with connect_or_start(settings) as client:
        client.ask(Ping())
    return True


def stop(*, kill: bool = False) -> None:
    """End the daemon, and return when it has ended; `kill` one that does not answer. Raises NoDaemon for none."""
    settings = queue_settings(os.environ)
    socket = control_socket(settings)
    locked = is_locked(settings)
    pid = listener(socket) or (daemon_pid(settings) if kill and locked else None)
    if pid is None and not locked:
        raise NoDaemon(f"no daemon runs for {settings.state_dir}", "there is nothing to stop; jobs go on without one")
    try:
        with Client(settings) as client:
            client.ask(Shutdown())
    except NoDaemon:
        if not kill or pid is None:
            raise
        _kill(pid)
    deadline = time.monotonic() + _END_PATIENCE_S
    while listener(socket) is not None or is_locked(settings):
        if time.monotonic() > deadline:
            raise HostFault(f"the daemon, process {pid}, does not end", "end it with: gpusched daemon stop --kill")
        time.sleep(0.01)


def _kill(pid: int) -> None:
    """Kill a daemon. Raises HostFault where the process is none: it may have ended, and its pid be another's."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError as error:
        raise HostFault(f"the daemon, process {pid}, cannot be killed: {error.strerror}", f"kill -9 {pid}") from None
    try:
        if start_time(pid) is not None and not is_daemon(pid):
            problem = f"process {pid} is no daemon of gpusched: that has ended, or runs in a container"
            raise HostFault(problem, "end the daemon where it runs")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def state() -> DaemonState:
    """Return how the daemon is. Raises NoDaemon for none."""
    settings = queue_settings(os.environ)
    with Client(settings) as client:
        pong = client.ask(Ping())
    if not isinstance(pong, Pong):
        raise ProtocolError("the daemon does not identify itself", "restart it: gpusched daemon stop")
    fields = {name: getattr(pong, name) for name in pong.__struct_fields__}
    if pong.version != gpusched.__version__:
        other = f"it is of version {pong.version}, and this command of {gpusched.__version__}"
        fields["problems"] = (*pong.problems, other)
    return DaemonState(**fields, socket=str(control_socket(settings)))


def drain(device: int | str, reason: str = "drained by hand") -> Drained:
    """Place nothing new on a device, by its index or the start of its uuid; return all that are drained, with reasons.

    What runs there goes on. The daemon is started if there is none. Raises UsageError for a device that there is not.
    """
    require_type(reason, _Text, "reason")
    return _drain(device, reason)


def undrain(device: int | str) -> Drained:
    """Use a device again; return those that are still drained. Raises as drain."""
    return _drain(device, None)


def _drain(device: int | str, reason: str | None) -> Drained:
    require_type(device, int | _Text, "device")
    with connect_or_start(queue_settings(os.environ)) as client:
        answer = client.ask(Drain(device=str(device), reason=reason))
    return answer if isinstance(answer, Drained) else Drained(devices={})
