"""The tables of legal moves, of a replica by (state, cause) and of a job by (from, to), and the error for any other.

    pending ─► starting ─► running ─► stopping ─► exited    stopped, however it died
                 │  ▲         │          ├──────► (as after a crash)   stopped because it overran its share
                 │  │         ├─────────────────► exited    completed
                 │  │         ├──────► stopping           its process ended and left others: they are stopped first
                 ▼  │         ▼
                backoff ◄── crashed, or could not start ──► failed    its restarts are used up

Terminal states have no row.
"""

from enum import StrEnum
from typing import Final

from gpusched.model.status import JobState, ReplicaState
from gpusched.supervisor.events import Transition

__all__ = ["JOB_MOVES", "REPLICA_MOVES", "Cause", "IllegalMove"]


class Cause(StrEnum):
    """What moves a replica."""

    START = "start"
    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn-failed"
    ENDED = "ended"
    LEFT = "left"
    STOP = "stop"
    OVERRUN = "overrun"


REPLICA_MOVES: Final[dict[tuple[ReplicaState, Cause], frozenset[ReplicaState]]] = {
    (ReplicaState.PENDING, Cause.START): frozenset({ReplicaState.STARTING}),
    (ReplicaState.PENDING, Cause.STOP): frozenset({ReplicaState.EXITED}),
    (ReplicaState.STARTING, Cause.SPAWNED): frozenset({ReplicaState.RUNNING}),
    (ReplicaState.STARTING, Cause.SPAWN_FAILED): frozenset({ReplicaState.BACKOFF, ReplicaState.FAILED}),
    (ReplicaState.STARTING, Cause.STOP): frozenset({ReplicaState.STOPPING}),
    (ReplicaState.RUNNING, Cause.ENDED): frozenset({ReplicaState.EXITED, ReplicaState.BACKOFF, ReplicaState.FAILED}),
    (ReplicaState.RUNNING, Cause.LEFT): frozenset({ReplicaState.STOPPING}),
    (ReplicaState.RUNNING, Cause.STOP): frozenset({ReplicaState.STOPPING}),
    (ReplicaState.RUNNING, Cause.OVERRUN): frozenset({ReplicaState.STOPPING}),
    (ReplicaState.STOPPING, Cause.SPAWN_FAILED): frozenset({ReplicaState.EXITED}),
    (ReplicaState.STOPPING, Cause.ENDED): frozenset({ReplicaState.EXITED, ReplicaState.BACKOFF, ReplicaState.FAILED}),
    (ReplicaState.BACKOFF, Cause.START): frozenset({ReplicaState.STARTING}),
    (ReplicaState.BACKOFF, Cause.STOP): frozenset({ReplicaState.EXITED}),
}

JOB_MOVES: Final = frozenset(
    {
        (JobState.QUEUED, JobState.STARTING),
        (JobState.QUEUED, JobState.STOPPING),
        (JobState.STARTING, JobState.RUNNING),
        (JobState.STARTING, JobState.STOPPING),
        (JobState.RUNNING, JobState.STOPPING),
        (JobState.STOPPING, JobState.SUCCEEDED),
        (JobState.STOPPING, JobState.FAILED),
        (JobState.STOPPING, JobState.CANCELLED),
        (JobState.STOPPING, JobState.LOST),
    }
)


class IllegalMove(Exception):
    """A move that no table holds: a defect of the supervisor, with what the subject went through before."""

    def __init__(self, subject: str, before: str, after: str, story: tuple[Transition, ...]) -> None:
        moves = "; ".join(f"{move.now:.3f} {move.before} -> {move.after}" for move in story) or "nothing yet"
        super().__init__(f"{subject}: {before} -> {after} is not a legal move; its story: {moves}")
        self.subject, self.before, self.after, self.story = subject, before, after, story
