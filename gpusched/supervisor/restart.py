"""Whether and when a replica that ended is started again, and the words for why it ended. Pure."""

import signal

from gpusched.model.status import ExitReason
from gpusched.model.workload import Restart
from gpusched.supervisor.spec import Backoff

__all__ = ["delay_s", "exit_text", "row_after", "starts_again"]


def starts_again(rule: Restart, reason: ExitReason, row: int) -> bool:
    """Return whether a replica that ended for `reason`, after `row` restarts in a row, is started once more."""
    wanted = rule.policy == "always" or (rule.policy == "on-failure" and reason.kind != "completed")
    return wanted and row < rule.max


def row_after(backoff: Backoff, row: int, ran_s: float) -> int:
    """Return how many restarts in a row count against a replica that has just run for `ran_s` seconds."""
    return 0 if ran_s >= backoff.stable_s else row


def delay_s(backoff: Backoff, row: int) -> float:
    """Return the seconds to wait before the next restart, when `row` restarts in a row went before it."""
    return min(backoff.first_s * 2.0 ** min(row, 64), backoff.longest_s)


def exit_text(reason: ExitReason) -> str:
    """Return an exit reason for people: `crashed with code 1`, `killed by SIGSEGV`, `killed for memory (OOM)`."""
    match reason.kind:
        case "crashed":
            return f"crashed with code {reason.code}"
        case "signalled":
            return f"killed by {_signal_name(reason.signal)}"
        case "oom":
            return "killed by the kernel because memory ran out (OOM)"
        case "spawn-failed":
            return f"could not start: {reason.message}"
        case kind:
            return kind


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"  # the real-time signals have no name
