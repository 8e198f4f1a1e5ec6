"""`gpusched daemon`: run, start, stop and check the process that holds the queue; drain a device."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpusched.errors import UsageError
from gpusched.render.text import printable

if TYPE_CHECKING:  # help needs none of them
    from gpusched.api.daemon import DaemonState, Drained

__all__ = ["daemon"]

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
    if kill and action != "stop":
        raise UsageError(f"daemon {action} takes no --kill", "only stop does: gpusched daemon stop --kill")
    if (device is not None) != (action in ("drain", "undrain")):
        wrong = f"daemon {action} takes no device" if device else f"daemon {action}: which device?"
        raise UsageError(wrong, "such as: gpusched daemon drain 2")
    from gpusched.api import daemon as api

    match action:
        case "run":
            api.run()
        case "start":
            started = api.start()
            text = "the daemon has been started" if started else "a daemon runs already"
            _report({"started": started}, text, as_json=as_json)
        case "stop":
            api.stop(kill=kill)
            _report({"stopped": True}, "the daemon has ended; jobs go on", as_json=as_json)
        case "status":
            _print_state(api.state(), as_json=as_json)
        case "drain":
            _print_drained(api.drain(device or "", reason), as_json=as_json)
        case "undrain":
            _print_drained(api.undrain(device or ""), as_json=as_json)


def _print_state(state: "DaemonState", *, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(json.dumps(msgspec.to_builtins(state)))
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.started))
    print(f"gpusched {state.version}, process {state.pid}, since {since}")
    print(f"jobs:     {state.running} running, {state.queued} queued")
    print(f"state:    {state.state_dir}")
    print(f"socket:   {state.socket}")
    if state.malformed:
        print(f"dropped:  {state.malformed} malformed messages")
    if (failed := state.undelivered) is not None:
        waiting = f"{failed.waiting} notifications could not be delivered yet, {failed.given_up} were given up"
        print(f"notify:   {waiting}: {printable(failed.reason)}")
    for problem in state.problems:
        print(f"problem:  {printable(problem)}")


def _print_drained(drained: "Drained", *, as_json: bool) -> None:
    names = drained.names
    text = "\n".join(f"{names.get(uuid, uuid)} takes nothing new: {why}" for uuid, why in drained.devices.items())
    _report({"drained": drained.devices}, text or "no device is drained", as_json=as_json)


def _report(document: dict[str, object], text: str, *, as_json: bool) -> None:
    print(json.dumps(document) if as_json else text)
