"""The brain of a supervisor: events in, instructions out. No I/O, no clock, no processes: time comes in the events.

Which moves are legal stands in transitions.py.
"""

from collections import deque
from typing import Final

from gpusched.execution.orders import IdleOrder, OverrunOrder, StopOrder
from gpusched.execution.spec import JobSpec
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, ExitReason, JobState, ReplicaState
from gpusched.model.workload import Restart
from gpusched.supervisor.events import (
    Ended,
    Event,
    FinishJob,
    GuardGone,
    Instruction,
    Killed,
    LearnerOver,
    Ordered,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Strays,
    Tick,
    Transition,
)
from gpusched.supervisor.replica_run import ReplicaRun, at_terminal, verdict
from gpusched.supervisor.restart import MEMORY_KINDS, delay_s, memory_advice, row_after, starts_again
from gpusched.supervisor.transitions import JOB_MOVES, REPLICA_MOVES, Cause, IllegalMove
from gpusched.units import format_seconds

__all__ = ["JOB", "IllegalMove", "Machine"]

JOB: Final = "job"
"""The subject of the job's own moves."""

_STARTS_PER_TICK: Final = 8  # so that a stop request never waits for a thousand starts
_STORY: Final = 16  # moves kept of each subject, to be shown with an IllegalMove
_REFUSED: Final = (
    "the learner does not let this host in: its key was revoked, or is of another job; ask the person who runs that "
    "job for a new one: gpusched keys new JOB NAME"
)
_LOST: Final = "the actors gave up: nothing came from the learner for long, or newer ones have their places"
_NOT_YET: Final = frozenset({ReplicaState.PENDING, ReplicaState.STARTING})


class Machine:
    """The states of one job and its replicas. Only `handle` changes them; `message` is the reason why the job ends.

    A replica has ended when the last of its processes has. The job has when all replicas and all strays have: what left
    its replica's session and has lost its parent. One grace holds for all of a stop.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        ordered = sorted(spec.replicas, key=lambda one: one.replica.role != spec.leader)  # the leader starts first
        self.replicas = {one.replica.name: ReplicaRun(name=one.replica.name, role=one.replica.role) for one in ordered}
        self.state = JobState.QUEUED
        self.message: str | None = None
        self._outcome = JobState.LOST
        self._learner_over = False
        self._ends_at: float | None = None
        self._kill_at: float | None = None
        self._strays = ""
        self._has_killed = False
        self._stories: dict[str, deque[Transition]] = {}
        self._instructions: list[Instruction] = []

    @property
    def deadline(self) -> float | None:
        """When a Tick is due, on the events' clock: 0 for at once; None if only other events can change anything."""
        runs = self.replicas.values()
        if self.state is JobState.QUEUED or any(run.state is ReplicaState.PENDING for run in runs):
            return 0.0
        times = [time for run in runs for time in (run.retry_at, run.kill_at)]
        return min((time for time in (*times, self._ends_at, self._kill_at) if time is not None), default=None)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened and return what is to be done. Raises IllegalMove for what cannot have happened."""
        match event:
            case Tick():
                self._tick(event.now)
            case Spawned():
                self._spawned(self.replicas[event.replica], event)
            case SpawnFailed():
                reason = ExitReason(kind="spawn-failed", message=event.message)
                self._gone(self.replicas[event.replica], Cause.SPAWN_FAILED, reason, event.now, final=event.final)
            case Ended():
                self._ended(self.replicas[event.replica], event)
            case Strays():
                self._strays = event.processes
            case Killed():
                run = self.replicas[event.replica]
                self._note_killed(run.name, run.state, event.processes, event.now, run.pid)
            case Ordered():
                self._obey(event.order, event.now)
            case GuardGone():
                self._end(JobState.LOST, event.message, event.now, kill=True)
            case LearnerOver():
                self._learner_is_over(event)
        self._judge(event.now)
        instructions, self._instructions = self._instructions, []
        return instructions

    def _obey(self, order: StopOrder | OverrunOrder | IdleOrder, now: float) -> None:
        match order:
            case StopOrder():
                self._end(JobState.CANCELLED, order.message, now, kill=order.kill)
            case OverrunOrder():
                self._overrun(order, now)
            case IdleOrder():
                self._idle(order, now)

    # One replica.

    def _tick(self, now: float) -> None:
        if self.state is JobState.QUEUED:
            self._move_job(JobState.STARTING, now)
            self._ends_at = None if self._spec.time_limit_s is None else now + self._spec.time_limit_s
        if self._ends_at is not None and now >= self._ends_at:
            limit = format_seconds(self._spec.time_limit_s or 0)
            self._end(JobState.FAILED, f"its time limit of {limit} is over", now, kill=False)
        starts = 0
        for run in self.replicas.values():
            due = run.state is ReplicaState.PENDING or (run.retry_at is not None and now >= run.retry_at)
            if due and starts < _STARTS_PER_TICK:
                starts += 1
                self._start(run, now)
            elif run.kill_at is not None and now >= run.kill_at:
                self._kill(run, overdue=True)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None  # at the end of the job, strays are killed
            if self._strays:
                self._note_killed(JOB, self.state, self._strays, now)

    def _start(self, run: ReplicaRun, now: float) -> None:
        if run.retry_at is not None:
            run.restarts, run.row, run.retry_at = run.restarts + 1, run.row + 1, None
        run.exit = run.warning = None
        self._move(run, ReplicaState.STARTING, Cause.START, now)
        self._instructions.append(Spawn(replica=run.name, attempt=run.restarts))

    def _spawned(self, run: ReplicaRun, event: Spawned) -> None:
        if run.pid is not None:
            raise self._illegal(run, Cause.SPAWNED)
        run.pid, run.started = event.pid, event.now
        if run.state is not ReplicaState.STOPPING:
            self._move(run, ReplicaState.RUNNING, Cause.SPAWNED, event.now)
        else:  # it was asked to stop while it was being started
            self._instructions.append(Signal(replica=run.name, pid=event.pid, kill=False))

    def _ended(self, run: ReplicaRun, event: Ended) -> None:
        """Take in the end of a replica's process; what it left has its grace before anything else has its place."""
        if not event.left:
            self._gone(run, Cause.ENDED, _reason(event), event.now)
        elif run.pid is None:
            raise self._illegal(run, Cause.ENDED)
        else:
            run.ran_s = None if run.started is None else event.now - run.started
            if run.state is ReplicaState.RUNNING:
                run.pending_exit = _reason(event)
                self._ask(run, Cause.LEFT, event.now)

    def _gone(self, run: ReplicaRun, cause: Cause, reason: ExitReason, now: float, *, final: bool = False) -> None:
        if (run.pid is None) is (cause is Cause.ENDED):
            raise self._illegal(run, cause)
        if run.started is not None:
            ran_s = now - run.started if run.ran_s is None else run.ran_s  # the grace of what it left is no proof
            run.row = row_after(self._spec.backoff, run.row, ran_s)
        if run.state is ReplicaState.STOPPING:
            reason = run.pending_exit or self._stopped(reason)
        if reason.kind in MEMORY_KINDS:
            run.walls += 1
        rule = Restart(policy="never") if self._spec.attached else self._spec.restart.get(run.role, Restart())
        last = run.role == self._spec.leader or self._learner_over
        completed = reason.kind == "completed" and (rule.policy != "always" or last)
        if completed or reason.kind == "stopped":
            self._leave(run, ReplicaState.EXITED, cause, reason, now)
        elif not final and starts_again(rule, reason, run.row, run.walls):
            run.retry_at = now + delay_s(self._spec.backoff, run.row)
            self._leave(run, ReplicaState.BACKOFF, cause, reason, now)
        else:
            self._leave(run, ReplicaState.FAILED, cause, reason, now)
            run.warning = memory_advice(reason, run.role)

    def _stopped(self, end: ExitReason) -> ExitReason:
        """Return why a replica ended that was asked to; how it did matters to the caller of an attached command."""
        if self._spec.attached:
            return ExitReason(kind="stopped", code=end.code, signal=end.signal)
        return ExitReason(kind="stopped")

    def _leave(self, run: ReplicaRun, after: ReplicaState, cause: Cause, reason: ExitReason, now: float) -> None:
        run.exit, run.kill_at, run.started, run.ran_s = reason, None, None, None
        run.pending_exit = run.warning = None
        self._move(run, after, cause, now)
        run.pid = None

    def _overrun(self, order: OverrunOrder, now: float) -> None:
        run = self.replicas.get(order.replica)
        if run is None or run.pid != order.pid or run.state is not ReplicaState.RUNNING:
            return
        if (order.message or None) != run.warning:
            run.warning = order.message or None
            message = order.message or "all is well again"
            here = ReplicaState.RUNNING
            self._record(Transition(now=now, subject=run.name, before=here, after=here, pid=run.pid, message=message))
        if order.restart:
            run.pending_exit = ExitReason(kind="overrun", message=order.message)
            self._ask(run, Cause.OVERRUN, now)

    def _stop(self, run: ReplicaRun, now: float) -> None:
        if run.state is ReplicaState.STOPPING:
            run.pending_exit = None
        elif run.state in (ReplicaState.PENDING, ReplicaState.BACKOFF):
            run.retry_at = None
            self._leave(run, ReplicaState.EXITED, Cause.STOP, ExitReason(kind="stopped"), now)
        else:
            self._ask(run, Cause.STOP, now)

    def _ask(self, run: ReplicaRun, cause: Cause, now: float) -> None:
        run.kill_at = now + self._spec.stop_grace_s
        self._move(run, ReplicaState.STOPPING, cause, now)
        if run.pid is not None:
            self._instructions.append(Signal(replica=run.name, pid=run.pid, kill=False))

    def _kill(self, run: ReplicaRun, *, overdue: bool = False) -> None:
        if run.pid is not None:
            run.kill_at = None
            self._instructions.append(Signal(replica=run.name, pid=run.pid, kill=True, overdue=overdue))

    def _note_killed(self, subject: str, state: str, processes: str, now: float, pid: int | None = None) -> None:
        """Record what had to be killed; the job's message has the first of it."""
        text = f"killed after its grace of {format_seconds(self._spec.stop_grace_s)}: {processes}"
        self._record(Transition(now=now, subject=subject, before=state, after=state, pid=pid, message=text))
        if self.state is JobState.STOPPING and not self._has_killed:
            self._has_killed = True
            text = text if subject == JOB else f"{subject} was {text}"
            self.message = f"{self.message}; {text}" if self.message else text

    def _move(self, run: ReplicaRun, after: ReplicaState, cause: Cause, now: float) -> None:
        if after not in REPLICA_MOVES.get((run.state, cause), ()):
            raise self._illegal(run, after)
        self._record(Transition(now=now, subject=run.name, before=run.state, after=after, pid=run.pid, exit=run.exit))
        run.state, run.since = after, now

    def _illegal(self, run: ReplicaRun, after: str) -> IllegalMove:
        return IllegalMove(run.name, run.state, after, tuple(self._stories.get(run.name, ())))

    # The job.

    def _learner_is_over(self, event: LearnerOver) -> None:
        self._learner_over = True
        if event.refuses:
            self._end(JobState.FAILED, _REFUSED, event.now, kill=False)
        elif event.lost:
            self._end(JobState.FAILED, _LOST, event.now, kill=False)
        elif event.unheard:
            self._end(JobState.SUCCEEDED, None, event.now, kill=False)

    def _idle(self, order: IdleOrder, now: float) -> None:
        if self.state not in (JobState.STARTING, JobState.RUNNING):
            return
        if order.end:
            self._end(JobState.FAILED, order.message, now, kill=False)
        else:
            here = self.state
            self._record(Transition(now=now, subject=JOB, before=here, after=here, message=order.message))

    def _judge(self, now: float) -> None:
        runs = self.replicas.values()
        if self.state is JobState.STARTING and not any(run.state in _NOT_YET for run in runs):
            self._move_job(JobState.RUNNING, now)
        if self.state is JobState.RUNNING or self.state is JobState.STARTING:
            end = verdict(runs, self._spec.leader, learner_over=self._learner_over)
            if end is not None and self._spec.attached:
                end = at_terminal(end, *runs)
            if end is not None:
                self._end(*end, now, kill=False)
        waits = self._strays and self._kill_at is not None
        if self.state is JobState.STOPPING and not waits and all(run.state in REPLICA_TERMINAL for run in runs):
            self._kill_at = None
            self._move_job(self._outcome, now)
            self._instructions.append(FinishJob(state=self._outcome))

    def _end(self, outcome: JobState, message: str | None, now: float, *, kill: bool) -> None:
        """Stop what still runs. The first reason to end a job decides its outcome; a later one may only hurry it."""
        if self.state in JOB_TERMINAL:
            return
        if self.state is not JobState.STOPPING:
            self._outcome, self.message, self._ends_at = outcome, message, None
            self._kill_at = now + self._spec.stop_grace_s
            self._move_job(JobState.STOPPING, now)
            for run in self.replicas.values():
                if run.state not in REPLICA_TERMINAL:
                    self._stop(run, now)
        if kill:
            self._kill_at = None
            for run in self.replicas.values():
                if run.state is ReplicaState.STOPPING:
                    run.kill_at = now
                    self._kill(run)

    def _move_job(self, after: JobState, now: float) -> None:
        if (self.state, after) not in JOB_MOVES:
            raise IllegalMove(JOB, self.state, after, tuple(self._stories.get(JOB, ())))
        self._record(Transition(now=now, subject=JOB, before=self.state, after=after, message=self.message))
        self.state = after

    def _record(self, move: Transition) -> None:
        self._stories.setdefault(move.subject, deque(maxlen=_STORY)).append(move)
        self._instructions.append(move)


def _reason(event: Ended) -> ExitReason:
    if event.oom:
        return ExitReason(kind="oom", code=event.code, signal=event.signal, message=event.message)
    if event.signal is not None:
        return ExitReason(kind="signalled", signal=event.signal)
    if event.code:
        return ExitReason(kind="crashed", code=event.code, message=event.message)
    return ExitReason(kind="completed")
