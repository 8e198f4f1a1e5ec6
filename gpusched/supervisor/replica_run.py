"""What the machine knows of each replica, and how a job ends by what its replicas did. Pure."""

import signal
from collections.abc import Collection
from typing import Final

import msgspec

from gpusched.model.status import REPLICA_TERMINAL, ExitReason, JobState, ReplicaState, exit_text

__all__ = ["ReplicaRun", "at_terminal", "verdict"]

_BY_SIGINT: Final = 128 + signal.SIGINT
_KEYS: Final = {
    signal.SIGINT: "ended by SIGINT, as by Ctrl-C",
    signal.SIGQUIT: "ended by SIGQUIT, as by Ctrl-\\",
    signal.SIGHUP: "ended by SIGHUP, as when its terminal is closed",
}


class ReplicaRun(msgspec.Struct, kw_only=True):
    """What the machine knows of one replica. Times in seconds of the events' clock.

    `restarts` counts all of them, `row` those in a row, `walls` its ends for want of memory; `exit` is why the latest
    process ended, None while one runs. `ran_s`: how long the latest ran that has ended and left others. `pending_exit`:
    why it is being stopped though the job goes on, or how its process has ended that left others. `warning`: what ails
    it, and what to do about it.
    """

    name: str
    role: str
    state: ReplicaState = ReplicaState.PENDING
    pid: int | None = None
    since: float | None = None
    started: float | None = None
    ran_s: float | None = None
    restarts: int = 0
    row: int = 0
    walls: int = 0
    retry_at: float | None = None
    kill_at: float | None = None
    exit: ExitReason | None = None
    pending_exit: ExitReason | None = None
    warning: str | None = None


def verdict(
    runs: Collection[ReplicaRun], leader: str | None, *, learner_over: bool
) -> tuple[JobState, str | None] | None:
    """Return how the job ends and why, if what its replicas did decides it.

    `leader`: the role whose end is the job's, if there is one. `learner_over`: the learner, on another host, is gone.
    """
    roles: dict[str, list[ReplicaRun]] = {}
    for run in runs:
        roles.setdefault(run.role, []).append(run)
    leaders = roles.pop(leader or "", [])
    if not leaders:
        return _verdict_without_leader(runs, learner_over=learner_over)
    for run in leaders:
        if run.state is ReplicaState.FAILED:
            return JobState.FAILED, _given_up(run)
    if all(run.state is ReplicaState.EXITED for run in leaders):
        return JobState.SUCCEEDED, None
    for role, others in roles.items():
        if all(run.state is ReplicaState.FAILED for run in others):  # the leader would wait for them for ever
            return JobState.FAILED, f"no {role} is left: {_given_up(others[-1])}"
    return None


def at_terminal(end: tuple[JobState, str | None], command: ReplicaRun) -> tuple[JobState, str | None]:
    """Return `end`, or that a person ended it, where a command in the foreground met a key of its terminal.

    A shell whose command died of SIGINT ends with 130 (POSIX.1-2017, XCU 2.8.2); 129 and 131 mean other things, too.
    """
    last = command.exit
    if last is None or last.kind not in {"signalled", "crashed"}:
        return end
    met = signal.SIGINT if last.code == _BY_SIGINT else last.signal
    return next(((JobState.CANCELLED, text) for number, text in _KEYS.items() if number == met), end)


def _verdict_without_leader(runs: Collection[ReplicaRun], *, learner_over: bool) -> tuple[JobState, str | None] | None:
    if learner_over:  # a replica that waits to be started again would find no learner
        over = all(run.state in REPLICA_TERMINAL or run.state is ReplicaState.BACKOFF for run in runs)
        return (JobState.SUCCEEDED, None) if over else None
    failed = [run for run in runs if run.state is ReplicaState.FAILED]
    if not all(run.state in REPLICA_TERMINAL for run in runs):
        return None
    return (JobState.FAILED, _given_up(failed[0])) if failed else (JobState.SUCCEEDED, None)


def _given_up(run: ReplicaRun) -> str:
    why = "an unknown reason" if run.exit is None else exit_text(run.exit)
    times = "" if run.restarts == 0 else f", after {run.restarts} restart{'s' if run.restarts > 1 else ''}"
    what, colon, detail = why.partition(": ")
    return f"{run.name} {what}{times}{colon}{detail}{f': {run.warning}' if run.warning else ''}"
