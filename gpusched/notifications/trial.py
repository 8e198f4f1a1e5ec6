"""Sends a test event and waits for what comes of it, by the process that delivers for the daemon."""

import os
import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec

from gpusched.interpreter import own_command
from gpusched.model.event import Event
from gpusched.notifications.destination import Answer, Destination, Parcel, Request
from gpusched.notifications.event_text import TEST

__all__ = ["example", "try_out"]

_LIMIT_S: Final = 10.0
_MARGIN_S: Final = 10.0


def example(host: str) -> Event:
    """Return an event that a person sends to see that it arrives."""
    return Event(
        id=os.urandom(16).hex(),
        event=TEST,
        time=round(time.time(), 3),
        host=host,
        message="sent by gpusched notify test",
        directory=str(Path.cwd()),
    )


def try_out(destination: Destination, event: Event) -> str | None:
    """Deliver an event; return why it was not delivered, None if it was."""
    parcel = Parcel(id=event.id, payload=msgspec.json.encode(event))
    request = Request(destination=destination, parcels=(parcel,), limit_s=_LIMIT_S)
    try:
        ended = subprocess.run(
            own_command("gpusched.notifications"),
            input=msgspec.msgpack.encode(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S + _MARGIN_S,
            check=False,
        )
        return msgspec.json.decode(ended.stdout, type=Answer).problem
    except subprocess.TimeoutExpired:
        return f"it did not end within {_LIMIT_S:g} s"
    except msgspec.MsgspecError:
        return "the process for it ended"
