"""Who holds a device and does nothing with it. Pure."""

from typing import Final

import msgspec

from gpusched.units import format_seconds

__all__ = ["IDLE_END", "Idle", "IdleProcess", "Quiet", "end_text", "idle_text"]

IDLE_END: Final = "ended by --idle-end"
"""How the message of a job begins that was ended because it was idle."""


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """For how long nothing has run on devices. Times are monotonic seconds of this boot.

    `since`: nothing has run from then on. `rests`: nor has anything been loaded for them; from then on it is idle.
    `polled` is the latest reading. `unknown_s` of the time nothing is known, as a bucket that leaks: see observed().
    `used`: something has run on them since the start. `starts` counts the starts of those who hold them.
    """

    since: float
    rests: float
    polled: float
    starts: int = 0
    unknown_s: float = 0.0
    used: bool = False


class IdleProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of no job that holds memory of a device and has done nothing with it `since`, in Unix seconds."""

    device_uuid: str
    pid: int
    since: float


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Who is idle: jobs, members of arrays among them, each with the moment since when, in Unix seconds; processes."""

    jobs: dict[str, float] = {}
    processes: tuple[IdleProcess, ...] = ()


def idle_text(idle_s: float, end_s: float | None) -> str:
    """Return `its devices have done nothing for 42m00s; --idle-end ends it in 1h18m unless it uses them`."""
    text = f"its devices have done nothing for {format_seconds(round(idle_s))}"
    if end_s is None:
        return text
    return f"{text}; --idle-end ends it in {format_seconds(max(1, round(end_s - idle_s)))} unless it uses them"


def end_text(end_s: float) -> str:
    """Return the reason of a job's end that was idle for so long."""
    return f"{IDLE_END}: its devices did nothing for {format_seconds(end_s)}"
