"""The process that delivers events: to one destination, one after the other, each in a bounded time.

It is a child of the daemon, so that whatever hangs here hangs alone. What it is to do comes on its standard input; a
line for each event goes to its standard output, as soon as it is known what came of it.
"""

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpusched.linux.processes import become_subreaper
from gpusched.model.event import Event
from gpusched.notifications.destination import Answer, Destination, Parcel, Request
from gpusched.notifications.event_text import body

__all__ = ["deliver", "main"]


def main() -> None:
    """Deliver what standard input has. It ends when the daemon that asked is gone."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    if request.files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, request.files)
    os.environ.update(request.environ)
    become_subreaper()
    for parcel in request.parcels:
        try:
            problem = deliver(request.destination, parcel, os.environ, request.limit_s)
        except Exception as error:  # noqa: BLE001 (whatever it is, the next event is not at fault)
            problem = f"internal error: {type(error).__name__}"
        try:
            os.write(1, msgspec.json.encode(Answer(id=parcel.id, problem=problem)) + b"\n")
        except BrokenPipeError:
            return


def deliver(destination: Destination, parcel: Parcel, environ: Mapping[str, str], limit_s: float) -> str | None:
    """Deliver one event; return why it was not, None if it was."""
    event = msgspec.json.decode(parcel.payload, type=Event)
    if destination.kind == "command":
        from gpusched.notifications.run_command import run_command

        cwd = event.directory if destination.in_directory and event.directory else str(Path.home())
        return run_command(["sh", "-c", destination.target], event, environ, cwd, limit_s)
    if destination.kind == "mail":
        from gpusched.notifications.run_command import send_mail

        return send_mail(destination.target, event, body(event), environ, limit_s)
    from gpusched.notifications.post import post

    return post(destination, event, parcel.payload, limit_s)
