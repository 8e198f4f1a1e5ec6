"""The machine alone: events in, instructions out, no process anywhere."""

import msgspec
import pytest

from gpusched.execution.orders import IdleOrder, OverrunOrder, StopOrder
from gpusched.execution.spec import JobSpec
from gpusched.model.job import Joining
from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.model.workload import Restart
from gpusched.supervisor.events import (
    Ended,
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
from gpusched.supervisor.machine import JOB, IllegalMove, Machine
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


def stop(now: float, message: str = "enough", *, kill: bool = False) -> Ordered:
    return Ordered(order=StopOrder(message=message, kill=kill), now=now)


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
    machine.handle(stop(0.0))
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


def test_the_grace_of_what_a_crashed_replica_left_makes_it_no_stable_one() -> None:
    machine, now = running(SNAKE), 0.0
    for attempt in range(3):
        machine.handle(Ended(replica="actor.0", code=3, left=True, now=now))
        now += 1000.0
        machine.handle(Ended(replica="actor.0", code=3, now=now))
        if attempt < 2:
            now = machine.deadline or 0.0
            machine.handle(Tick(now=now))
            machine.handle(Spawned(replica="actor.0", pid=500 + attempt, now=now))
    assert state(machine, "actor.0") is ReplicaState.FAILED


@pytest.mark.parametrize(
    ("rule", "code", "expected"),
    [
        (Restart(policy="never", max=3), 1, ReplicaState.FAILED),
        (Restart(policy="never", max=3), 0, ReplicaState.EXITED),
        (Restart(policy="on-failure", max=3), 1, ReplicaState.BACKOFF),
        (Restart(policy="on-failure", max=3), 0, ReplicaState.EXITED),
        (Restart(policy="on-failure", max=0), 1, ReplicaState.FAILED),
        (Restart(policy="on-signal", max=3), 1, ReplicaState.FAILED),
        (Restart(policy="on-signal", max=3), 0, ReplicaState.EXITED),
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


def test_the_number_of_restarts_stands_before_what_a_crashed_program_wrote_last() -> None:
    machine = Machine(job(replica("actor.0"), restarts=1))
    for now in (0.0, 1.0):
        machine.handle(Tick(now=now))
        machine.handle(Spawned(replica="actor.0", pid=1, now=now))
        machine.handle(Ended(replica="actor.0", code=1, message="install it there, and launch again", now=now))
    assert machine.message == "actor.0 crashed with code 1, after 1 restart: install it there, and launch again"


def test_a_program_that_cannot_start_is_retried_within_its_rule_and_says_why() -> None:
    machine = Machine(job(replica("actor.0"), restarts=1))
    for now in (0.0, 1.0):
        assert machine.handle(Tick(now=now))
        last = machine.handle(SpawnFailed(replica="actor.0", message="nosuch: No such file", now=now))
    assert state(machine, "actor.0") is ReplicaState.FAILED
    assert machine.replicas["actor.0"].exit == ExitReason(kind="spawn-failed", message="nosuch: No such file")
    assert asked(last) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "actor.0 could not start, after 1 restart: nosuch: No such file"


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
    assert machine.message == (
        "learner.0 killed by the kernel because memory ran out (OOM): "
        "the host has too little memory: run fewer processes, or smaller ones"
    )


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


JOINED = msgspec.structs.replace(
    ARRAY, network=Joining(endpoint="tcp://lab1:5555", job="snake-9", host="lab2", key="/x/join.key")
)


def test_actors_on_another_host_end_with_success_when_their_learner_has_told_them() -> None:
    machine = running(JOINED)
    assert asked(machine.handle(Ended(replica="part.0", code=0, now=1.0))) == []

    told = asked(machine.handle(Ended(replica="part.1", code=0, now=1.1)))

    assert told == [FinishJob(state=JobState.SUCCEEDED)]


def test_an_actor_that_waits_for_its_restart_when_the_learner_ends_is_not_started_for_nobody() -> None:
    machine = running(JOINED)
    machine.handle(Ended(replica="part.0", code=1, now=1.0))
    assert state(machine, "part.0") is ReplicaState.BACKOFF
    assert asked(machine.handle(LearnerOver(now=1.005))) == []

    told = asked(machine.handle(Ended(replica="part.1", code=0, now=1.01)))

    assert told == [FinishJob(state=JobState.SUCCEEDED)]


def test_an_actor_that_is_always_started_again_is_not_once_the_learner_is_over() -> None:
    machine = running(msgspec.structs.replace(JOINED, restart={"part": Restart(policy="always")}))
    machine.handle(LearnerOver(now=1.0))

    machine.handle(Ended(replica="part.0", code=0, now=1.1))
    told = asked(machine.handle(Ended(replica="part.1", code=0, now=1.2)))

    assert state(machine, "part.0") is ReplicaState.EXITED
    assert told == [FinishJob(state=JobState.SUCCEEDED)]


def test_an_actor_that_ends_by_itself_does_not_end_those_that_go_on() -> None:
    machine = running(JOINED)
    machine.handle(Ended(replica="part.0", code=1, now=1.0))

    assert asked(machine.handle(Ended(replica="part.1", code=0, now=1.01))) == []
    assert machine.state is JobState.RUNNING


def test_a_learner_that_is_lost_fails_the_job_of_its_actors_here() -> None:
    machine = running(JOINED)

    machine.handle(LearnerOver(now=1.0, lost=True))
    machine.handle(Ended(replica="part.0", code=0, now=1.1))

    assert asked(machine.handle(Ended(replica="part.1", code=0, now=1.2))) == [FinishJob(state=JobState.FAILED)]
    assert "nothing came from the learner" in (machine.message or "")


def test_who_will_not_hear_of_the_learners_end_is_stopped_with_success() -> None:
    machine = running(JOINED)
    machine.handle(Ended(replica="part.0", code=0, now=1.0))

    told = asked(machine.handle(LearnerOver(now=1.1, unheard=True)))
    again = asked(machine.handle(LearnerOver(now=1.2, unheard=True)))
    ended = asked(machine.handle(Ended(replica="part.1", signal=15, now=1.3)))

    assert told == [Signal(replica="part.1", pid=101, kill=False)]
    assert again == []
    assert ended == [FinishJob(state=JobState.SUCCEEDED)]


def test_actors_that_all_fail_fail_their_job_here() -> None:
    machine = running(msgspec.structs.replace(JOINED, restart={"part": Restart(policy="never")}))
    machine.handle(Ended(replica="part.0", code=1, now=1.0))

    told = asked(machine.handle(Ended(replica="part.1", code=1, now=1.1)))

    assert told == [FinishJob(state=JobState.FAILED)]


def test_a_job_of_nothing_has_succeeded() -> None:
    assert asked(Machine(job()).handle(Tick(now=0.0))) == [FinishJob(state=JobState.SUCCEEDED)]


def test_a_stop_asks_first_and_kills_after_the_grace() -> None:
    machine = running(ARRAY)
    told = asked(machine.handle(stop(5.0)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=False) for rank in (0, 1)]
    machine.handle(Ended(replica="part.0", signal=15, now=5.1))
    assert asked(machine.handle(Tick(now=5.29))) == []
    assert machine.deadline == pytest.approx(5.3)
    assert asked(machine.handle(Tick(now=5.31))) == [Signal(replica="part.1", pid=101, kill=True, overdue=True)]
    assert asked(machine.handle(Tick(now=9.0))) == []
    assert asked(machine.handle(Ended(replica="part.1", signal=9, now=9.0))) == [FinishJob(state=JobState.CANCELLED)]
    assert {run.exit for run in machine.replicas.values()} == {ExitReason(kind="stopped")}


def test_a_second_stop_kills_at_once() -> None:
    machine = running(ARRAY)
    machine.handle(stop(5.0))
    told = asked(machine.handle(stop(5.01, "now", kill=True)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=True) for rank in (0, 1)]
    assert machine.message == "enough"


def test_a_stop_before_anything_started_ends_the_job_without_a_process() -> None:
    machine = Machine(ARRAY)
    assert asked(machine.handle(stop(0.0, "no"))) == [FinishJob(state=JobState.CANCELLED)]


def test_a_stop_during_a_start_reaches_the_process_once_it_is_there() -> None:
    machine = Machine(job(replica("part.0")))
    machine.handle(Tick(now=0.0))
    assert asked(machine.handle(stop(0.0, "no"))) == []
    told = asked(machine.handle(Spawned(replica="part.0", pid=5, now=0.1)))
    assert told == [Signal(replica="part.0", pid=5, kill=False)]


def test_a_stop_during_a_backoff_needs_no_process() -> None:
    machine = running(job(replica("part.0")))
    machine.handle(Ended(replica="part.0", code=1, now=1.0))
    assert asked(machine.handle(stop(1.0, "no"))) == [FinishJob(state=JobState.CANCELLED)]
    assert machine.deadline is None


def test_without_its_guard_a_job_is_killed_and_lost() -> None:
    machine = running(job(replica("part.0")))
    told = asked(machine.handle(GuardGone(now=1.0, message="the guard was killed")))
    assert Signal(replica="part.0", pid=100, kill=True) in told
    assert asked(machine.handle(Ended(replica="part.0", signal=9, now=1.0))) == [FinishJob(state=JobState.LOST)]


def test_the_first_reason_to_end_decides_the_outcome() -> None:
    machine = running(SNAKE)
    machine.handle(Ended(replica="learner.0", code=0, now=1.0))
    machine.handle(stop(1.0))
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


def overrun(name: str = "actor.0", pid: int = 100, *, restart: bool = True, now: float = 1.0) -> Ordered:
    order = OverrunOrder(replica=name, pid=pid, message="uses 2100 of its 1500 MiB", restart=restart)
    return Ordered(order=order, now=now)


def restarted(machine: Machine, name: str, pid: int, now: float) -> None:
    """Let the backoff of the replica go by and its next process start."""
    assert asked(machine.handle(Tick(now=now))) == [Spawn(replica=name, attempt=machine.replicas[name].restarts)]
    machine.handle(Spawned(replica=name, pid=pid, now=now))


def test_a_replica_over_its_share_is_warned_of_and_goes_on() -> None:
    machine = running(SNAKE)
    (told,) = machine.handle(overrun(restart=False))
    assert isinstance(told, Transition)
    assert (told.before, told.after) == (ReplicaState.RUNNING, ReplicaState.RUNNING)
    assert told.message == machine.replicas["actor.0"].warning == "uses 2100 of its 1500 MiB"
    assert machine.handle(overrun(restart=False, now=2.0)) == [], "the same warning is told once"
    machine.handle(Ordered(order=OverrunOrder(replica="actor.0", pid=100, message=""), now=1.0))
    assert machine.replicas["actor.0"].warning is None


def test_an_overrun_stops_the_replica_and_starts_it_anew() -> None:
    machine = running(SNAKE)
    assert asked(machine.handle(overrun())) == [Signal(replica="actor.0", pid=100, kill=False)]
    assert state(machine, "actor.0") is ReplicaState.STOPPING
    assert asked(machine.handle(Tick(now=1.31))) == [Signal(replica="actor.0", pid=100, kill=True, overdue=True)]
    machine.handle(Ended(replica="actor.0", signal=9, now=1.32))
    run = machine.replicas["actor.0"]
    assert (run.state, run.warning) == (ReplicaState.BACKOFF, None)
    assert run.exit == ExitReason(kind="overrun", message="uses 2100 of its 1500 MiB")
    restarted(machine, "actor.0", 200, 2.0)
    assert state(machine, "actor.0") is ReplicaState.RUNNING
    assert machine.state is JobState.RUNNING


@pytest.mark.parametrize("event", [overrun(pid=99), overrun(name="nobody.0"), overrun(name="actor.1", pid=100)])
def test_an_overrun_of_another_process_is_nothing(event: Ordered) -> None:
    machine = running(SNAKE)
    assert machine.handle(event) == []
    assert {run.state for run in machine.replicas.values()} == {ReplicaState.RUNNING}


def test_an_overrun_of_what_is_being_stopped_is_nothing() -> None:
    machine = running(ARRAY)
    machine.handle(stop(1.0))
    assert machine.handle(overrun(name="part.0")) == []


def test_a_replica_that_may_never_be_restarted_fails_by_an_overrun_and_the_job_says_what_to_do() -> None:
    spec = job(replica("actor.0"))
    spec.restart["actor"] = Restart(policy="never")
    machine = running(spec)
    machine.handle(overrun())
    assert asked(machine.handle(Ended(replica="actor.0", code=0, now=1.1))) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == (
        "actor.0 stopped because it uses 2100 of its 1500 MiB: give actor more memory, or run fewer on one device"
    )


def test_a_stop_of_the_job_overtakes_an_overrun() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(overrun())
    assert asked(machine.handle(stop(1.2))) == []
    assert asked(machine.handle(Tick(now=1.3))) == [Signal(replica="actor.0", pid=100, kill=True, overdue=True)]
    told = asked(machine.handle(Ended(replica="actor.0", signal=9, now=1.3)))
    assert told == [FinishJob(state=JobState.CANCELLED)]
    assert machine.replicas["actor.0"].exit == ExitReason(kind="stopped")


@pytest.mark.parametrize(("most", "expected"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_a_replica_is_not_restarted_into_the_same_wall_for_ever_however_long_it_runs_in_between(
    most: int, expected: int
) -> None:
    machine, now = running(job(replica("actor.0"), replica("actor.1"), restarts=most)), 0.0
    run = machine.replicas["actor.0"]
    while state(machine, "actor.0") is ReplicaState.RUNNING:
        now += 1000.0
        if run.restarts % 2:
            machine.handle(Ended(replica="actor.0", code=1, oom=True, now=now))
        else:
            machine.handle(overrun(pid=run.pid or 0, now=now))
            machine.handle(Ended(replica="actor.0", signal=15, now=now))
        if state(machine, "actor.0") is ReplicaState.BACKOFF:
            restarted(machine, "actor.0", 200 + run.restarts, now + 1.0)
    assert (run.state, run.restarts) == (ReplicaState.FAILED, expected)
    assert run.warning == "give actor more memory, or run fewer on one device"
    assert machine.state is JobState.RUNNING


def test_the_time_limit_stops_the_job_and_fails_it() -> None:
    machine = running(msgspec.structs.replace(ARRAY, time_limit_s=7200.0))
    assert machine.deadline == 7200.0
    assert asked(machine.handle(Tick(now=7199.9))) == []
    told = asked(machine.handle(Tick(now=7200.0)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=False) for rank in (0, 1)]
    assert machine.deadline == pytest.approx(7200.3)
    told = asked(machine.handle(Tick(now=7200.31)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=True, overdue=True) for rank in (0, 1)]
    machine.handle(Ended(replica="part.0", signal=9, now=7200.4))
    assert asked(machine.handle(Ended(replica="part.1", signal=9, now=7200.4))) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "its time limit of 2h00m is over"


def test_the_time_limit_counts_from_the_first_tick_and_holds_during_a_backoff() -> None:
    machine = Machine(msgspec.structs.replace(job(replica("part.0")), time_limit_s=10.0))
    machine.handle(Tick(now=50.0))
    machine.handle(SpawnFailed(replica="part.0", message="no", now=59.99))
    assert machine.deadline == 60.0
    assert asked(machine.handle(Tick(now=60.0))) == [FinishJob(state=JobState.FAILED)]
    assert machine.deadline is None


def test_a_job_that_is_idle_is_warned_and_then_ended_as_by_a_time_limit() -> None:
    machine = running(ARRAY)
    (warned,) = machine.handle(Ordered(order=IdleOrder(message="ends in 1h30m"), now=10.0))
    assert warned == Transition(now=10.0, subject=JOB, before="running", after="running", message="ends in 1h30m")
    assert machine.message is None
    told = asked(machine.handle(Ordered(order=IdleOrder(message="it did nothing", end=True), now=20.0)))
    assert told == [Signal(replica=f"part.{rank}", pid=100 + rank, kill=False) for rank in (0, 1)]
    assert machine.handle(Ordered(order=IdleOrder(message="ends in 1h30m"), now=20.1)) == []
    machine.handle(Ended(replica="part.0", signal=15, now=20.2))
    assert asked(machine.handle(Ended(replica="part.1", signal=15, now=20.2))) == [FinishJob(state=JobState.FAILED)]
    assert machine.message == "it did nothing"


def test_an_attached_command_is_never_started_again() -> None:
    machine = running(msgspec.structs.replace(job(replica("command.0"), restarts=5), attached=True))
    assert asked(machine.handle(Ended(replica="command.0", code=3, now=1.0))) == [FinishJob(state=JobState.FAILED)]
    assert machine.replicas["command.0"].exit == ExitReason(kind="crashed", code=3)


def test_a_replica_whose_process_left_others_is_stopped_before_it_is_started_again() -> None:
    machine = running(job(replica("actor.0")))
    told = asked(machine.handle(Ended(replica="actor.0", code=3, left=True, now=1.0)))
    assert told == [Signal(replica="actor.0", pid=100, kill=False)]
    assert state(machine, "actor.0") is ReplicaState.STOPPING
    assert machine.deadline == pytest.approx(1.3)

    assert asked(machine.handle(Ended(replica="actor.0", code=3, now=1.1))) == []

    assert state(machine, "actor.0") is ReplicaState.BACKOFF
    assert machine.replicas["actor.0"].exit == ExitReason(kind="crashed", code=3)


def test_what_a_process_leaves_at_a_stop_is_not_asked_a_second_time() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(stop(1.0))

    assert asked(machine.handle(Ended(replica="actor.0", signal=15, left=True, now=1.1))) == []
    assert asked(machine.handle(Tick(now=1.31))) == [Signal(replica="actor.0", pid=100, kill=True, overdue=True)]
    machine.handle(Killed(replica="actor.0", processes="7 (sh)", now=1.31))

    assert asked(machine.handle(Ended(replica="actor.0", signal=15, now=1.4))) == [FinishJob(state=JobState.CANCELLED)]
    assert machine.message == "enough; actor.0 was killed after its grace of 0.3 s: 7 (sh)"


def test_the_message_names_the_first_that_had_to_be_killed_not_all() -> None:
    machine = running(ARRAY)
    machine.handle(stop(1.0))
    machine.handle(Tick(now=1.31))
    for rank in (0, 1):
        machine.handle(Killed(replica=f"part.{rank}", processes=f"{rank} (sh)", now=1.31))

    assert machine.message == "enough; part.0 was killed after its grace of 0.3 s: 0 (sh)"


def test_a_job_whose_replica_leaves_others_at_a_stop_is_not_started_again() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(Ended(replica="actor.0", code=3, left=True, now=1.0))
    machine.handle(stop(1.1))

    assert asked(machine.handle(Ended(replica="actor.0", code=3, now=1.2))) == [FinishJob(state=JobState.CANCELLED)]


def test_a_job_waits_for_strays_until_they_are_gone() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(Strays(processes="7 (redis)", now=1.0))
    assert asked(machine.handle(Ended(replica="actor.0", code=0, now=1.0))) == []
    assert machine.state is JobState.STOPPING
    assert machine.deadline == pytest.approx(1.3)

    assert asked(machine.handle(Strays(processes="", now=1.2))) == [FinishJob(state=JobState.SUCCEEDED)]
    assert machine.message is None


def test_a_job_waits_for_strays_no_longer_than_its_grace() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(stop(1.0))
    machine.handle(Strays(processes="7 (redis)", now=1.2))
    assert asked(machine.handle(Ended(replica="actor.0", signal=15, now=1.2))) == []

    assert asked(machine.handle(Tick(now=1.31))) == [FinishJob(state=JobState.CANCELLED)]
    assert machine.message == "enough; killed after its grace of 0.3 s: 7 (redis)"


def test_a_request_to_kill_does_not_wait_for_strays() -> None:
    machine = running(job(replica("actor.0")))
    machine.handle(stop(1.0))
    machine.handle(Strays(processes="7 (redis)", now=1.0))
    machine.handle(Ended(replica="actor.0", signal=15, now=1.0))

    told = asked(machine.handle(stop(1.1, "now", kill=True)))

    assert (told, machine.message) == ([FinishJob(state=JobState.CANCELLED)], "enough")
