"""What people read of an event: a title, and some lines. Plain text of one line each, whatever a job's message has."""

import time
from typing import Final

from gpusched.model.event import Event
from gpusched.units import format_seconds

__all__ = ["TEST", "body", "title"]

TEST: Final = "test"
"""The event that a person sends to see that it arrives."""

_HAPPENED: Final = {
    "started": "has started",
    "succeeded": "has succeeded",
    "failed": "has failed",
    "time-limit": "has failed: time limit",
    "out-of-memory": "has failed: out of memory",
    "cancelled": "was cancelled",
    "lost": "is lost",
    "idle": "is idle",
    "device-drained": "takes nothing new",
    TEST: "can reach you: this is a test",
}


def title(event: Event) -> str:
    """Return `train (run-7) has failed: out of memory`."""
    who = event.device or event.job or "gpusched"
    if event.name:
        who = f"{event.name} ({who})"
    return _line(f"{who} {_HAPPENED.get(event.event, event.event)}")


def body(event: Event) -> str:
    """Return some lines: the message, how long it ran, where."""
    lines = [event.message or ""]
    if event.started is not None and event.ended is not None:
        lines.append(f"ran {format_seconds(round(max(0.0, event.ended - event.started)))}")
    lines.append(f"on {event.host}, {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(event.time))}")
    if event.directory:
        lines.append(f"in {event.directory}")
    return "\n".join(_line(line) for line in lines if line)


def _line(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
