"""What a pass over the queue is given of the running jobs, and what it decides."""

import msgspec

from gpusched.errors import NeverFits
from gpusched.model.plan import Plan

__all__ = ["Decision", "Running", "Start"]


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A live job of this daemon. `ends_at` (Unix seconds): when its time limit is over, None without one.

    `ends`: when it may end (`drawn_ends`); empty: nothing is known. `group`, `array`: those that it counts in.
    """

    id: str
    ends_at: float | None = None
    run_dir: str = ""
    ends: tuple[float, ...] = ()
    group: str | None = None
    array: str | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A job that starts now, and what it gets."""

    id: str
    plan: Plan


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What starts, in this order; why each of the others waits; and which could not start however long they waited.

    `promised`: of heads, a start (Unix seconds) that is expected for the first time, or earlier than ever. `faults` are
    internal errors at single jobs, which wait; the others are decided on all the same.
    """

    starts: tuple[Start, ...] = ()
    why: dict[str, str]
    never: dict[str, NeverFits]
    promised: dict[str, float] = {}
    faults: dict[str, Exception] = {}
