"""The machine alone: events in, instructions out, no process anywhere."""

import pytest

from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.model.workload import Restart
from gpusched.supervisor.events import (
    Ended,
    FinishJob,
    GuardGone,
    Instruction,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    StopRequested,
    Tick,
)
from gpusched.supervisor.machine import IllegalMove, Machine
from gpusched.supervisor.spec import JobSpec
from tests.supervisor.specs import job, replica


def asked(instructions: list[Instruction]) -> list[Spawn | Signal | FinishJob]:
    return [one for one in instructions if isinstance(one, Spawn | Signal | FinishJob)]


def running(spec: JobSpec) -> Machine:
    """A machine whose replicas all run; the pid of the n-th of the spec is 100 + n. Time is 0."""
    machine = Machine(spec)
    while not all(run.pid for run in machine.replicas.values()):
        for one in asked(machine.handle(Tick(now=0.0))):
            assert isinstance(one, Spawn)
            machine.handle(Spawned(replica=one.replica, pid=pid(spec, one.replica), now=0.0))
    assert machine.state is JobState.RUNNING
    return machine


def pid(spec: JobSpec, name: str) -> int:
    return 100 + [one.replica.name for one in spec.replicas].index(name)


def state(machine: Machine, name: str) -> ReplicaState:
    return machine.replicas[name].state


SNAKE = job(replica("actor.0"), replica("actor.1"), replica("learner.0"), leader="learner")
ARRAY = job(replica("part.0"), replica("part.1"))


def test_the_leader_starts_first() -> None:
    starts = asked(Machine(SNAKE).handle(Tick(now=0.0)))
    assert [one.replica for one in starts if isinstance(one, Spawn)] == ["learner.0", "actor.0", "actor.1"]


def test_many_replicas_start_a_few_at_a_time_so_that_a_stop_never_waits_for_all() -> None:
    machine = Machine(job(*(replica(f"actor.{rank}") for rank in range(100))))
    first = asked(machine.handle(Tick(now=0.0)))
    assert 0 < len(first) < 20
    assert machine.deadline == 0.0
    for one in first:
        assert isinstance(one, Spawn)
        machine.handle(Spawned(replica=one.replica, pid=7, now=0.0))
    machine.handle(StopRequested(now=0.0, message="enough"))
    assert asked(machine.handle(Tick(now=0.1))) == []
    states = [run.state for run in machine.replicas.values()]
    assert states.count(ReplicaState.EXITED) == 100 - len(first)
    assert states.count(ReplicaState.STOPPING) == len(first)


def test_a_crashed_replica_waits_longer_each_time_and_then_fails() -> None:
    machine, now, waits = running(SNAKE), 0.0, []
    for attempt in (0, 1):
        assert asked(machine.handle(Ended(replica="actor.0", code=3, now=now))) == []
        assert state(machine, "actor.0") is ReplicaState.BACKOFF
        assert machine.deadline is not None
        waits.append(machine.deadline - now)
        assert asked(machine.handle(Tick(now=machine.deadline - 0.001))) == []
        now = machine.deadline
        assert asked(machine.handle(Tick(now=now))) == [Spawn(replica="actor.0", attempt=attempt + 1)]
        machine.handle(Spawned(replica="actor.0", pid=500 + attempt, now=now))
    assert waits == pytest.approx([0.05, 0.1])
    machine.handle(Ended(replica="actor.0", code=3, now=now))
    assert state(machine, "actor.0") is ReplicaState.FAILED
    assert machine.replicas["actor.0"].exit == ExitReason(kind="crashed", code=3)
    assert machine.state is JobState.RUNNING


def test_a_replica_that_ran_stably_starts_counting_anew() -> None:
    machine, now = running(SNAKE), 0.0
    for _ in range(10):
        now += 60.0
        machine.handle(Ended(replica="actor.0", signal=9, now=now))
        assert machine.deadline == pytest.approx(now + 0.05)
        now += 0.05
        machine.handle(Tick(now=now))
        machine.handle(Spawned(replica="actor.0", pid=int(now * 100), now=now))
    assert machine.replicas["actor.0"].restarts == 10


@pytest.mark.parametrize(
    ("rule", "code", "expected"),
    [
        (Restart(policy="never", max=3), 1, ReplicaState.FAILED),
        (Restart(policy="never", max=3), 0, ReplicaState.EXITED),
        (Restart(policy="on-failure", max=3), 1, ReplicaState.BACKOFF),
        (Restart(policy="on-failure", max=3), 0, ReplicaState.EXITED),
        (Restart(policy="on-failure", max=0), 1, ReplicaState.FAILED),
        (Restart(policy="always", max=3), 0, ReplicaState.BACKOFF),
        (Restart(policy="always", max=0), 0, ReplicaState.FAILED),
    ],
)
def test_the_roles_rule_decides_about_a_restart(rule: Restart, code: int, expected: ReplicaState) -> None:
    spec = job(replica("actor.0"), replica("actor.1"))
    spec.restart["actor"] = rule
    machine = running(spec)
    machine.handle(Ended(replica="actor.0", code=code, now=1.0))
    assert state(machine, "actor.0") is expected


def test_a_program_that_cannot_start_is_retried_within_its_rule_and_says_why() -> None:
    machine = Machine(job(replica("actor.0"), restarts=1))
    for now in (0.0, 1.0):
        assert machine.handle(Tick(now=now))
        last = machine.handle(SpawnFailed(replica="actor.0", message="nosuch: No such file", now=now))
    assert state(machine, "actor.0") is ReplicaState.FAILED
    assert machine.replicas["actor.0"].exit == ExitReason(kind="spawn-failed", message="nosuch: No such file")
    assert asked(last) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "actor.0 could not start: nosuch: No such file, after 1 restart"


def test_the_leaders_success_stops_the_others_and_is_the_jobs() -> None:
    machine = running(SNAKE)
    told = asked(machine.handle(Ended(replica="learner.0", code=0, now=1.0)))
    assert told == [Signal(replica=f"actor.{rank}", pid=100 + rank, kill=False) for rank in (0, 1)]
    assert machine.state is JobState.STOPPING
    machine.handle(Ended(replica="actor.0", code=1, now=1.1))
    told = asked(machine.handle(Ended(replica="actor.1", signal=15, now=1.1)))
    assert told == [FinishJob(state=JobState.SUCCEEDED)]
    assert {run.exit for run in machine.replicas.values() if run.role == "actor"} == {ExitReason(kind="stopped")}


def test_the_leaders_success_is_final_even_if_it_is_always_restarted() -> None:
    spec = job(replica("learner.0"), leader="learner")
    spec.restart["learner"] = Restart(policy="always", max=9)
    machine = running(spec)
    assert asked(machine.handle(Ended(replica="learner.0", code=0, now=1.0))) == [FinishJob(state=JobState.SUCCEEDED)]


def test_a_leader_that_gives_up_fails_the_job() -> None:
    spec = job(replica("actor.0"), replica("learner.0"), leader="learner", restarts=0)
    machine = running(spec)
    told = asked(machine.handle(Ended(replica="learner.0", signal=9, oom=True, now=1.0)))
    assert told == [Signal(replica="actor.0", pid=100, kill=False)]
    assert asked(machine.handle(Ended(replica="actor.0", code=0, now=1.0))) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "learner.0 killed by the kernel because memory ran out (OOM)"


def test_a_job_goes_on_without_one_actor_and_fails_when_none_is_left() -> None:
    spec = job(replica("learner.0"), replica("actor.0"), replica("actor.1"), leader="learner", restarts=0)
    machine = running(spec)
    assert asked(machine.handle(Ended(replica="actor.0", code=1, now=1.0))) == []
    told = asked(machine.handle(Ended(replica="actor.1", signal=11, now=1.0)))
    assert told == [Signal(replica="learner.0", pid=100, kill=False)]
    assert asked(machine.handle(Ended(replica="learner.0", code=0, now=1.1))) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "no actor is left: actor.1 killed by SIGSEGV"


def test_actors_that_completed_do_not_fail_the_job() -> None:
    machine = running(SNAKE)
    machine.handle(Ended(replica="actor.0", code=0, now=1.0))
    machine.handle(Ended(replica="actor.1", code=0, now=1.0))
    assert machine.state is JobState.RUNNING


@pytest.mark.parametrize(("code", "expected"), [(0, JobState.SUCCEEDED), (1, JobState.FAILED)])
def test_without_a_leader_a_job_ends_with_its_last_replica(code: int, expected: JobState) -> None:
    spec = job(replica("part.0"), replica("part.1"), restarts=0)
    machine = running(spec)
    machine.handle(Ended(replica="part.0", code=code, now=1.0))
    assert machine.state is JobState.RUNNING
    assert asked(machine.handle(Ended(replica="part.1", code=0, now=2.0))) == [FinishJob(state=expected)]


def test_a_job_of_nothing_has_succeeded() -> None:
    assert asked(Machine(job()).handle(Tick(now=0.0))) == [FinishJob(state=JobState.SUCCEEDED)]


def test_a_stop_asks_first_and_kills_after_the_grace() -> None:
    machine = running(ARRAY)
    told = asked(machine.handle(StopRequested(now=5.0, message="enough")))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=False) for rank in (0, 1)]
    machine.handle(Ended(replica="part.0", signal=15, now=5.1))
    assert asked(machine.handle(Tick(now=5.29))) == []
    assert machine.deadline == pytest.approx(5.3)
    assert asked(machine.handle(Tick(now=5.31))) == [Signal(replica="part.1", pid=101, kill=True)]
    assert asked(machine.handle(Tick(now=9.0))) == []
    assert asked(machine.handle(Ended(replica="part.1", signal=9, now=9.0))) == [FinishJob(state=JobState.CANCELLED)]
    assert {run.exit for run in machine.replicas.values()} == {ExitReason(kind="stopped")}


def test_a_second_stop_kills_at_once() -> None:
    machine = running(ARRAY)
    machine.handle(StopRequested(now=5.0, message="enough"))
    told = asked(machine.handle(StopRequested(now=5.01, message="now", kill=True)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=True) for rank in (0, 1)]
    assert machine.message == "enough"


def test_a_stop_before_anything_started_ends_the_job_without_a_process() -> None:
    machine = Machine(ARRAY)
    assert asked(machine.handle(StopRequested(now=0.0, message="no"))) == [FinishJob(state=JobState.CANCELLED)]


def test_a_stop_during_a_start_reaches_the_process_once_it_is_there() -> None:
    machine = Machine(job(replica("part.0")))
    machine.handle(Tick(now=0.0))
    assert asked(machine.handle(StopRequested(now=0.0, message="no"))) == []
    told = asked(machine.handle(Spawned(replica="part.0", pid=5, now=0.1)))
    assert told == [Signal(replica="part.0", pid=5, kill=False)]


def test_a_stop_during_a_backoff_needs_no_process() -> None:
    machine = running(job(replica("part.0")))
    machine.handle(Ended(replica="part.0", code=1, now=1.0))
    assert asked(machine.handle(StopRequested(now=1.0, message="no"))) == [FinishJob(state=JobState.CANCELLED)]
    assert machine.deadline is None


def test_without_its_guard_a_job_is_killed_and_lost() -> None:
    machine = running(job(replica("part.0")))
    told = asked(machine.handle(GuardGone(now=1.0, message="the guard was killed")))
    assert Signal(replica="part.0", pid=100, kill=True) in told
    assert asked(machine.handle(Ended(replica="part.0", signal=9, now=1.0))) == [FinishJob(state=JobState.LOST)]


def test_the_first_reason_to_end_decides_the_outcome() -> None:
    machine = running(SNAKE)
    machine.handle(Ended(replica="learner.0", code=0, now=1.0))
    machine.handle(StopRequested(now=1.0, message="enough"))
    machine.handle(GuardGone(now=1.0, message="the guard was killed"))
    for rank in (0, 1):
        last = machine.handle(Ended(replica=f"actor.{rank}", signal=9, now=1.1))
    assert asked(last) == [FinishJob(state=JobState.SUCCEEDED)]


def test_an_illegal_move_tells_where_the_replica_has_been() -> None:
    machine = running(SNAKE)
    with pytest.raises(IllegalMove) as told:
        machine.handle(Spawned(replica="actor.0", pid=7, now=1.0))
    assert (told.value.subject, told.value.before, told.value.after) == ("actor.0", "running", "spawned")
    assert "pending -> starting; 0.000 starting -> running" in str(told.value)


@pytest.mark.parametrize(
    "event",
    [
        Ended(replica="part.0", code=0, now=0.0),
        Ended(replica="part.0", code=1, now=0.0),
        Spawned(replica="part.0", pid=1, now=0.0),
        SpawnFailed(replica="part.0", message="no", now=0.0),
    ],
)
def test_nothing_can_happen_to_a_replica_that_was_never_started(event: Ended | Spawned | SpawnFailed) -> None:
    with pytest.raises(IllegalMove):
        Machine(ARRAY).handle(event)
