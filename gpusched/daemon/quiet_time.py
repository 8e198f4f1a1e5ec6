"""For how long nothing has run on the devices of a job or of a process, from one reading to the next. Pure.

What is not known is not idle, and what loads is not idle:

- A reading of which the driver reports no use, and a time without readings, count as unknown. They are passed over
  while they are rare: two minutes in a row, or one part in thirty. Beyond that the quiet time begins again.
- Before the first use of its devices, a job loads for up to `after_s`. Whenever the processes of a job keep a CPU busy,
  it loads, for up to four times as long: a job that computes on the CPU alone wastes its device all the same.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from gpusched.model.idle import Quiet

__all__ = ["Seen", "idle_s", "observed"]

_MOST_UNKNOWN_S: Final = 120.0
_ONE_IN: Final = 30
_LONGEST_S: Final = 60.0
"""The longest time that one reading stands for: the daemon may have been halted."""

_LOADS_FOR: Final = 4
"""How many times `after_s` a busy CPU counts as loading."""


class Seen(NamedTuple):
    """One reading: whether the devices were used (None: unknown), and whether a CPU is busy for them."""

    used: bool | None
    loads: bool = False


def observed(before: Quiet | None, starts: int, seen: Seen, now: float, after_s: float) -> Quiet:
    """Return the quiet time as of a reading at `now`, of those who hold the devices since their start `starts`."""
    if before is None or before.starts != starts:
        return Quiet(since=now, rests=now, polled=now, starts=starts, used=bool(seen.used))
    passed = now - before.polled
    unknown_s = max(0.0, before.unknown_s - passed / _ONE_IN)
    if seen.used is None or passed > _LONGEST_S:
        unknown_s = before.unknown_s + passed
    used = before.used or bool(seen.used)
    if seen.used or passed < 0 or unknown_s > _MOST_UNKNOWN_S:
        return Quiet(since=now, rests=now, polled=now, starts=starts, used=used)
    loads_until = before.since
    if seen.loads:
        loads_until += _LOADS_FOR * after_s
    elif not used:
        loads_until += after_s
    rests = max(before.rests, min(now, loads_until))
    return replace(before, rests=rests, polled=now, unknown_s=unknown_s)


def idle_s(quiet: Quiet, after_s: float) -> float | None:
    """Return for how many seconds the devices are idle as of the latest reading; None: they are not, or not yet.

    Time of which nothing is known does not make them idle.
    """
    rested = quiet.polled - quiet.rests
    return rested if rested - quiet.unknown_s >= after_s else None
