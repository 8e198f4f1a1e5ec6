"""Whatever happens, in whatever order: what must hold of every job."""

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpusched.execution.orders import IdleOrder, OverrunOrder, StopOrder
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobState, ReplicaState
from gpusched.model.workload import Restart
from gpusched.supervisor.events import (
    Ended,
    Event,
    FinishJob,
    GuardGone,
    Ordered,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Strays,
    Tick,
    Transition,
)
from gpusched.supervisor.machine import JOB, Machine
from tests.supervisor.specs import job, replica

RULES = st.builds(
    Restart, policy=st.sampled_from(["never", "on-signal", "on-failure", "always"]), max=st.integers(0, 3)
)


class AnyJob(RuleBasedStateMachine):
    """A host with processes that end when they like, and a machine that is told and obeyed."""

    @initialize(
        actors=st.integers(0, 4),
        learners=st.integers(0, 2),
        leader=st.sampled_from([None, "learner", "actor"]),
        rules=st.tuples(RULES, RULES),
        limit=st.sampled_from([None, 100.0]),
    )
    def begin(
        self, actors: int, learners: int, leader: str | None, rules: tuple[Restart, Restart], limit: float | None
    ) -> None:
        names = [f"actor.{rank}" for rank in range(actors)] + [f"learner.{rank}" for rank in range(learners)]
        self.spec = msgspec.structs.replace(job(*(replica(name) for name in names), leader=leader), time_limit_s=limit)
        self.spec.restart.update(actor=rules[0], learner=rules[1])
        self.machine = Machine(self.spec)
        self.now, self.next_pid = 0.0, 1
        self.asked: list[str] = []
        self.living: dict[str, int] = {}
        self.headless: dict[str, int] = {}
        self.started: dict[str, float] = {}
        self.row: dict[str, int] = {}
        self.finished: list[JobState] = []
        self.stopped = False
        self.ends_at: float | None = None

    def tell(self, event: Event) -> None:
        killed: list[str] = []
        for instruction in self.machine.handle(event):
            assert not self.finished, "an instruction after the end"
            match instruction:
                case Spawn(replica=name):
                    assert name not in self.living
                    assert name not in self.asked
                    self.asked.append(name)
                case Signal(replica=name, pid=pid, kill=kill):
                    assert self.living[name] == pid
                    killed += [name] if kill else []
                case Transition(subject=subject, before=before):
                    terminal = JOB_TERMINAL if subject == JOB else REPLICA_TERMINAL
                    assert before not in terminal, "a terminal state was left"
                case FinishJob(state=state):
                    assert not self.living
                    assert not self.asked
                    self.finished.append(state)
        for name in killed:
            self.die(name, None, 9)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), code=st.sampled_from([0, 1]))
    def a_process_ends_and_leaves_others(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.living)))
        if name not in self.headless:
            self.headless[name] = code
            self.tell(Ended(replica=name, code=code, left=True, now=self.now))

    @rule(processes=st.sampled_from(["", "7 (redis)"]))
    def strays_come_and_go(self, processes: str) -> None:
        self.tell(Strays(processes=processes, now=self.now))

    def die(self, name: str, code: int | None, signal: int | None, *, oom: bool = False) -> None:
        if name in self.headless:
            code, signal, oom = self.headless.pop(name), None, False
        if self.living.pop(name, None) is None:
            return  # it was killed while its own end was being told
        if self.now - self.started[name] >= self.spec.backoff.stable_s:
            self.row[name] = 0
        self.tell(Ended(replica=name, code=code, signal=signal, oom=oom, now=self.now))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 0.5, 61.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        if self.ends_at is None and self.spec.time_limit_s is not None:
            self.ends_at = self.now + self.spec.time_limit_s
        self.stopped = self.stopped or (self.ends_at is not None and self.now >= self.ends_at)
        self.tell(Tick(now=self.now))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), restart=st.booleans(), wrong=st.sampled_from([0, 0, 1]))
    def a_process_takes_too_much(self, data: st.DataObject, restart: bool, wrong: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.living)))
        order = OverrunOrder(replica=name, pid=self.living[name] + wrong, message="too much", restart=restart)
        self.tell(Ordered(order=order, now=self.now))

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def a_process_finds_no_memory(self, data: st.DataObject) -> None:
        self.die(data.draw(st.sampled_from(sorted(self.living))), 1, None, oom=True)

    @precondition(lambda self: self.asked)
    @rule(works=st.booleans())
    def a_start_is_answered(self, works: bool) -> None:
        name = self.asked.pop(0)
        self.row[name] = self.row.get(name, -1) + 1
        most = self.spec.restart[name.partition(".")[0]].max
        assert self.row[name] <= most, "restarted more often in a row than its rule allows"
        if works:
            self.living[name], self.started[name] = self.next_pid, self.now
            self.next_pid += 1
            self.tell(Spawned(replica=name, pid=self.living[name], now=self.now))
        else:
            self.tell(SpawnFailed(replica=name, message="no", now=self.now))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1, 77]))
    def a_process_exits(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.living)))
        leaders = [run for run in self.machine.replicas.values() if run.role == self.spec.leader]
        code = self.headless.get(name, code)
        self.die(name, code, None)
        if code == 0 and len(leaders) == 1 and leaders[0].name == name:
            assert self.machine.state in {JobState.STOPPING, *JOB_TERMINAL}, "the leader's end is the job's"

    @precondition(lambda self: self.living)
    @rule(data=st.data(), signal=st.sampled_from([9, 11, 15]))
    def a_process_is_killed(self, data: st.DataObject, signal: int) -> None:
        self.die(data.draw(st.sampled_from(sorted(self.living))), None, signal)

    @rule(kill=st.booleans())
    def a_stop_is_requested(self, kill: bool) -> None:
        self.stopped = True
        self.tell(Ordered(order=StopOrder(kill=kill), now=self.now))

    @rule(end=st.booleans())
    def the_devices_do_nothing(self, end: bool) -> None:
        self.stopped = self.stopped or (end and self.machine.state in {JobState.STARTING, JobState.RUNNING})
        self.tell(Ordered(order=IdleOrder(message="nothing", end=end), now=self.now))

    @rule()
    def the_guard_dies(self) -> None:
        self.stopped = True
        self.tell(GuardGone(now=self.now, message="gone"))

    @invariant()
    def a_replica_has_a_pid_exactly_while_its_process_lives(self) -> None:
        found = {name: run.pid for name, run in self.machine.replicas.items() if run.pid is not None}
        assert found == self.living

    @invariant()
    def nothing_runs_into_the_same_wall_for_ever(self) -> None:
        for run in self.machine.replicas.values():
            assert run.walls <= min(self.spec.restart[run.role].max, 3) + 1

    @invariant()
    def a_running_job_has_something_to_wait_for(self) -> None:
        waits = self.machine.deadline is not None or self.living or self.asked
        assert waits or self.machine.state in JOB_TERMINAL

    @invariant()
    def after_a_stop_nothing_is_started(self) -> None:
        if self.stopped:
            states = {run.state for run in self.machine.replicas.values()}
            assert not states & {ReplicaState.PENDING, ReplicaState.BACKOFF, ReplicaState.RUNNING}

    def teardown(self) -> None:
        """A stop always comes to an end, though no process listens to SIGTERM: in one grace, with one answer."""
        if not hasattr(self, "machine"):
            return
        self.a_stop_is_requested(kill=False)
        while self.asked:
            self.a_start_is_answered(works=True)
        self.now += self.spec.stop_grace_s
        self.tell(Tick(now=self.now))
        assert self.finished == [self.machine.state]
        assert not self.living
        assert all(run.state in REPLICA_TERMINAL for run in self.machine.replicas.values())


TestAnyJob = AnyJob.TestCase
TestAnyJob.settings = settings(max_examples=150, stateful_step_count=40)
