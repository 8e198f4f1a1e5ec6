"""Whether and when a replica that ended is started again, and what to do about ends for want of memory. Pure."""

from typing import Final

from gpusched.execution.spec import Backoff
from gpusched.model.status import ExitReason
from gpusched.model.workload import Restart

__all__ = ["MEMORY_KINDS", "delay_s", "memory_advice", "row_after", "starts_again"]

MEMORY_KINDS: Final = frozenset({"oom", "overrun"})
"""Ends for want of memory: the next process runs into the same wall, so that few are tried."""

_MOST_MEMORY_RESTARTS: Final = 3


def starts_again(rule: Restart, reason: ExitReason, row: int, walls: int) -> bool:
    """Return whether a replica that ended for `reason`, after `row` restarts in a row, is started once more.

    `walls` counts its ends for want of memory, this one included, however long it ran in between.
    """
    killed = reason.kind == "signalled" or (reason.kind == "oom" and reason.signal is not None)
    wanted = {
        "always": True,
        "on-failure": reason.kind != "completed",
        "on-signal": killed,
        "never": False,
    }[rule.policy]
    if reason.kind in MEMORY_KINDS and walls > min(rule.max, _MOST_MEMORY_RESTARTS):
        return False
    return wanted and row < rule.max


def row_after(backoff: Backoff, row: int, ran_s: float) -> int:
    """Return how many restarts in a row count against a replica that has just run for `ran_s` seconds."""
    return 0 if ran_s >= backoff.stable_s else row


def delay_s(backoff: Backoff, row: int) -> float:
    """Return the seconds to wait before the next restart, when `row` restarts in a row went before it."""
    return min(backoff.first_s * 2.0 ** min(row, 64), backoff.longest_s)


def memory_advice(reason: ExitReason, role: str) -> str | None:
    """Return what to do about replicas of `role` that end for want of memory; None for any other reason."""
    if reason.kind == "overrun" or (reason.kind == "oom" and reason.signal is None and reason.message is None):
        return f"give {role} more memory, or run fewer on one device"
    return "the host has too little memory: run fewer processes, or smaller ones" if reason.kind == "oom" else None
