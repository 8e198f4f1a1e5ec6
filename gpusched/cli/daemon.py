"""`gpusched daemon`: run, start, stop and check the process that holds the queue; drain a device."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Annotated, Final, Literal

import typer

import gpusched
from gpusched.errors import HostFault, NoDaemon, ProtocolError, UsageError
from gpusched.render.text import printable
from gpusched.settings import Settings, load_settings

__all__ = ["daemon"]

_END_PATIENCE_S: Final = 10.0

Action = Literal["run", "start", "stop", "status", "drain", "undrain"]


def daemon(
    action: Annotated[
        Action,
        typer.Argument(
            help="run: be the daemon, in the foreground. start: start it in the background. stop: end it; jobs go on. "
            "status: show how it is. drain, undrain: place nothing new on a device, or use it again."
        ),
    ],
    device: Annotated[
        str | None, typer.Argument(help="Of drain and undrain: an index, or the start of a uuid.", metavar="[GPU]")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why the device is drained.")] = "drained by hand",
    kill: Annotated[bool, typer.Option("--kill", help="Of stop: kill a daemon that does not answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run, start, stop or check the daemon, which holds the queue. Jobs go on without it.

    Example: gpusched daemon drain 2 --reason "its fan is broken"
    """
    settings = load_settings(os.environ)
    if kill and action != "stop":
        raise UsageError(f"daemon {action} takes no --kill", "only stop does: gpusched daemon stop --kill")
    if (device is not None) != (action in ("drain", "undrain")):
        wrong = f"daemon {action} takes no device" if device else f"daemon {action}: which device?"
        raise UsageError(wrong, "such as: gpusched daemon drain 2")
    match action:
        case "run":
            _run(settings)
        case "start":
            started = _start(settings)
            _report(
                {"started": started},
                "the daemon has been started" if started else "a daemon runs already",
                as_json=as_json,
            )
        case "stop":
            _stop(settings, kill=kill)
            _report({"stopped": True}, "the daemon has ended; jobs go on", as_json=as_json)
        case "status":
            _status(settings, as_json=as_json)
        case "drain" | "undrain":
            _drain(settings, action, device or "", reason, as_json=as_json)


def _run(settings: Settings) -> None:
    """Become the daemon: nothing of the command line is left in its memory."""
    from gpusched.control.client import daemon_environment
    from gpusched.interpreter import own_command

    sys.stdout.flush()
    environ = daemon_environment(settings)
    os.chdir("/")
    os.execve(sys.executable, own_command("gpusched.daemon"), environ)  # noqa: S606


def _start(settings: Settings) -> bool:
    """Return whether a daemon had to be started. Raises NoDaemon for one that hangs."""
    from gpusched.control.client import Client, control_socket, listener, spawn_daemon
    from gpusched.control.messages import Ping

    if listener(control_socket(settings)) is None:
        spawn_daemon(settings)
        return True
    with Client(settings) as client:
        client.ask(Ping())
    return False


def _stop(settings: Settings, *, kill: bool) -> None:
    from gpusched.control.client import Client, control_socket, daemon_pid, listener
    from gpusched.control.messages import Shutdown
    from gpusched.control.place import is_locked

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
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_PATIENCE_S
    while listener(socket) is not None or is_locked(settings):
        if time.monotonic() > deadline:
            raise HostFault(f"the daemon, process {pid}, does not end", "end it with: gpusched daemon stop --kill")
        time.sleep(0.01)


def _status(settings: Settings, *, as_json: bool) -> None:
    from gpusched.control.client import Client, control_socket
    from gpusched.control.messages import Ping, Pong

    with Client(settings) as client:
        pong = client.ask(Ping())
    if not isinstance(pong, Pong):
        raise ProtocolError("the daemon does not identify itself", "restart it: gpusched daemon stop")
    problems = list(pong.problems)
    if pong.version != gpusched.__version__:
        problems.append(f"it is of version {pong.version}, and this command of {gpusched.__version__}")
    if as_json:
        import msgspec

        report = {**msgspec.to_builtins(pong), "problems": problems, "socket": str(control_socket(settings))}
        print(json.dumps(report))
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(pong.started))
    print(f"gpusched {pong.version}, process {pong.pid}, since {since}")
    print(f"jobs:     {pong.running} running, {pong.queued} queued")
    print(f"state:    {pong.state_dir}")
    print(f"socket:   {control_socket(settings)}")
    if pong.malformed:
        print(f"dropped:  {pong.malformed} malformed messages")
    for problem in problems:
        print(f"problem:  {printable(problem)}")


def _drain(settings: Settings, action: Action, device: str, reason: str, *, as_json: bool) -> None:
    from gpusched.control.client import connect_or_start
    from gpusched.control.messages import Drain, Drained, Undrain

    request = Drain(device=device, reason=reason) if action == "drain" else Undrain(device=device)
    with connect_or_start(settings) as client:
        answer = client.ask(request)
    devices, names = (answer.devices, answer.names) if isinstance(answer, Drained) else ({}, {})
    text = "\n".join(f"{names.get(uuid, uuid)} takes nothing new: {why}" for uuid, why in devices.items())
    _report({"drained": devices}, text or "no device is drained", as_json=as_json)


def _report(document: dict[str, object], text: str, *, as_json: bool) -> None:
    print(json.dumps(document) if as_json else text)
