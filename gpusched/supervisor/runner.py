"""The supervisor of one job: the loop between its machine, its processes and its directory.

It holds no rule: what to do is the machine's answer to what happened.
"""

import contextlib
import os
import signal
from functools import partial
from typing import Final

import msgspec

from gpusched.environment import attempt_environment, child_environment
from gpusched.execution.directory import JobDirectory
from gpusched.execution.hosts import remove_keys_of_start
from gpusched.execution.learner_socket import remove_own_socket
from gpusched.execution.missing_module import missing_module
from gpusched.execution.orders import PassedOnOrder, StopOrder, end_of, read_new
from gpusched.execution.relatives import outliving
from gpusched.execution.spec import Start, Streams
from gpusched.frameworks.recorder import MEMORY_DIRECTORY
from gpusched.leases.directory import give_back
from gpusched.linux.files import remove_tree
from gpusched.linux.oom import OomKills, find_counter, read_counter
from gpusched.linux.processes import become_subreaper
from gpusched.model.job import RemoteLearner
from gpusched.model.status import REPLICA_TERMINAL, JobState, ReplicaState
from gpusched.supervisor.attached_child import attached_child
from gpusched.supervisor.enlargement import Enlargement
from gpusched.supervisor.events import (
    Ended,
    Event,
    FinishJob,
    GuardGone,
    Killed,
    Ordered,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Strays,
    Tick,
    Transition,
)
from gpusched.supervisor.learner_notices import LearnerNotices
from gpusched.supervisor.leftovers import kill_leftovers
from gpusched.supervisor.limit_watch import LimitWatch
from gpusched.supervisor.machine import JOB, Machine
from gpusched.supervisor.memory_errors import memory_that_ran_out
from gpusched.supervisor.output import Logs, last_line
from gpusched.supervisor.process import Children, ProcessExit, SpawnError
from gpusched.supervisor.recorder import BootClock, Recorder
from gpusched.supervisor.usage_meter import UsageMeter
from gpusched.supervisor.wakeup import Wakeup
from gpusched.zygote.client import ZygoteState, start_zygote

__all__ = ["Runner"]

_LONGEST_SLEEP_S: Final = 5.0  # what the OOM counter is sampled by; else nothing happens in an idle job
_POLL_S: Final = 0.5  # the end of a process whose parent is another one wakes no sleeper
_LAST_SAVE_PATIENCE_S: Final = 10.0
_STARTS_PER_TURN: Final = 8  # so that a stop request never waits for all that have waited for the zygote


class Runner:
    """One job from its first replica to its last status, in a child of the process `guard`. Raises HostFault.

    `streams` are those of an attached job's command, None for a job that is not attached.
    """

    def __init__(self, directory: JobDirectory, guard: int, streams: Streams | None) -> None:
        become_subreaper()
        spec = directory.read_spec()
        self._directory, self._guard, self._attached = directory, guard, spec.attached
        self._clock = BootClock()
        self._oom = OomKills(partial(read_counter, find_counter()))
        command = attached_child(directory, spec) if spec.attached else None  # reads what signals do until now
        self._wakeup = Wakeup(spec.launcher)
        self._preload = start_zygote(directory, spec)
        self._children = command or Children(self._preload, partial(outliving, str(directory.path)))
        self._first_attempt = spec.attempt  # so that no replica of a job that is started again takes itself for new
        self._network, self._attributes = spec.network, spec.attributes
        self._notices = LearnerNotices(directory, spec) if isinstance(spec.network, RemoteLearner) else None
        self._specs = {one.replica.name: one for one in spec.replicas}
        self._machine = Machine(spec)
        self._enlargement = Enlargement(directory, spec)
        remove_tree(directory.path / MEMORY_DIRECTORY)  # of an earlier run: attempts may have the same numbers again
        self._usage = UsageMeter(directory.path)
        self._recorder = Recorder(directory, spec, self._clock, self._usage)
        names = (*self._specs, "zygote", "supervisor")
        cap = spec.log_cap_mib << 20
        self._output = Logs(directory, self._recorder.trouble, cap=cap, names=names, attached=streams)
        self._names: dict[int, str] = {}
        self._left: dict[int, Ended] = {}
        self._ended_for_good: list[str] = []  # of which the share is still to be handed in
        self._passed_on = False
        self._signals: list[Signal] = []
        self._spawns: list[Spawn] = []
        self._finished: JobState | None = None
        self._stops_handled = 0
        self._next_sample = 0.0
        self._limits = LimitWatch(directory.path, spec)
        self._orders_read = end_of(directory.orders)
        self._complained = False

    def run(self) -> JobState:
        """Reap, receive, advance, signal, spawn, save, sleep until something happens; again until the job has ended."""
        self._advance()
        self._save()  # others see by it that this process is up, before anything is started
        while True:
            self._reap()
            self._receive()
            self._advance()
            self._signal()
            self._spawn()
            self._give_back()
            if self._finished is not None:
                return self._finish(self._finished)
            self._save()
            self._wakeup.sleep(self._pause_s(), None if self._preload is None else self._preload.fileno())

    def _reap(self) -> None:
        if self._notices is not None and (over := self._notices.read(self._machine.replicas, self._now())) is not None:
            self._apply(over)
        deaths = self._children.reap()
        if deaths:  # first: a job whose last replica has ended may have to wait for them
            self._apply(Strays(processes=self._children.strays(), now=self._now()))
        for death in deaths:
            self._usage.ended(death.pid, death.cpu_s, self._now())
            self._apply(self._ended(death))
        if self._usage.poll(self._now()):
            self._recorder.changed()
        if self._now() >= self._next_sample:
            self._oom.sample()
            self._output.trim()
            self._recorder.restore()
            self._next_sample = self._now() + _LONGEST_SLEEP_S
        for event in self._limits.poll(self._names, self._machine.replicas, self._now()):
            self._apply(event)

    def _receive(self) -> None:
        preload = self._preload
        if preload is not None:
            preload.receive()
            for step, text in preload.steps():
                self._recorder.remark("zygote", step, text)
            self._recorder.set_note(preload.doing if preload.state is ZygoteState.LOADING else None)

    def _ended(self, death: ProcessExit) -> Ended:
        """Return the end of a replica's process, which is judged when it ends, or later that of all that it left."""
        ended = self._left.pop(death.pid, None)
        if ended is None:
            ended = self._judged(self._names[death.pid], death)
        if death.left:
            self._left[death.pid] = ended
        else:
            del self._names[death.pid]
        return msgspec.structs.replace(ended, left=bool(death.left), now=self._now())

    def _judged(self, replica: str, death: ProcessExit) -> Ended:
        tail = self._output.tail(replica) if death.code else b""
        lacked = memory_that_ran_out(tail)
        if lacked == "device":
            self._enlargement.lacked(replica)
            self._usage.lacked(self._specs[replica].replica)
        why = missing_module(tail, self._specs[replica].argv[0]) or last_line(tail)
        killed = death.signal == signal.SIGKILL and not death.ours and self._oom.claim()
        return Ended(
            replica=replica,
            now=self._now(),
            code=death.code,
            signal=death.signal,
            oom=killed or lacked is not None,
            message=why if lacked is None else "the host's memory" if lacked == "host" else None,
        )

    def _advance(self) -> None:
        while self._stops_handled < self._wakeup.stops:
            kill = self._stops_handled > 0
            self._stops_handled += 1
            self._apply(Ordered(order=StopOrder(kill=kill), now=self._now()))
        self._obey()
        if os.getppid() != self._guard:
            self._apply(GuardGone(now=self._now(), message="the guard of this job was killed"))
        if self._wakeup.launcher_gone():
            who = "the `gpusched run` that it belongs to" if self._attached else "the launch that shows it"
            self._apply(Ordered(order=StopOrder(message=f"stopped because {who} is gone"), now=self._now()))
        self._apply(Tick(now=self._now()))

    def _obey(self) -> None:
        """Read the orders at every turn, so that a signal that was lost loses none."""
        orders, self._orders_read = read_new(self._directory.orders, self._orders_read, self._complain)
        for order in orders:
            if isinstance(order, PassedOnOrder):
                self._passed_on = True
            else:
                self._apply(Ordered(order=order, now=self._now()))

    def _complain(self, problem: str) -> None:
        if not self._complained:
            self._complained = True
            self._recorder.log(problem)

    def _signal(self) -> None:
        signals, self._signals = self._signals, []
        for one in signals:
            if not one.kill:
                self._children.ask(one.pid, alone=self._passed_on)
                continue
            killed = self._children.kill(one.pid)
            if killed and one.overdue:
                self._apply(Killed(replica=one.replica, processes=killed, now=self._now()))
        if self._machine.state is JobState.STOPPING:
            self._apply(Strays(processes=self._children.ask_strays(), now=self._now()))

    def _spawn(self) -> None:
        """Start what may start now. What is to be stopped again before it was started has no process to be stopped."""
        spawns, self._spawns = self._spawns, []
        due: list[Spawn] = []
        for one in spawns:
            stopped = self._machine.replicas[one.replica].state is ReplicaState.STOPPING
            if stopped and not self._attached:
                self._apply(SpawnFailed(replica=one.replica, message="stopped before it was started", now=self._now()))
            elif len(due) == _STARTS_PER_TURN or self._is_held_back(one):
                self._spawns.append(one)
            else:
                due.append(one)
        if due:
            self._start(due)

    def _is_held_back(self, one: Spawn) -> bool:
        preload = self._preload
        return preload is not None and preload.state is ZygoteState.LOADING and preload.takes(self._specs[one.replica])

    def _start(self, due: list[Spawn]) -> None:
        starts = [self._start_of(one) for one in due]
        try:
            results = self._children.spawn(starts)
        finally:
            for descriptor in {descriptor for start in starts for descriptor in start.streams}:
                with contextlib.suppress(OSError):  # an attached job may have been started without
                    os.close(descriptor)
        for one, result in zip(due, results, strict=True):
            if isinstance(result, SpawnError):
                failed = SpawnFailed(replica=one.replica, message=result.message, final=result.final, now=self._now())
                self._apply(failed)
            else:
                self._names[result] = one.replica
                self._limits.started(one.replica, self._now())
                replica, attempt = self._specs[one.replica].replica, self._first_attempt + one.attempt
                self._usage.started(replica, result, attempt, self._now())
                self._apply(Spawned(replica=one.replica, pid=result, now=self._now()))
                for event in self._enlargement.news(one.replica, result, self._now()):
                    self._apply(event)

    def _start_of(self, one: Spawn) -> Start:
        spec, attempt = self._enlargement.next(self._specs[one.replica]), self._first_attempt + one.attempt
        if spec is not self._specs[one.replica]:
            self._specs[one.replica] = spec
            self._recorder.enlarged(spec.replica)
        env = child_environment(
            os.environ,
            spec.env,
            attempt_environment(attempt),
            {} if self._attached else {"TMPDIR": str(self._directory.tmp)},
        )
        streams = self._output.streams(one.replica, attempt, self._clock.unix(self._now()))
        return Start(spec=spec, env=env, streams=streams, attributes=self._attributes)

    def _save(self) -> None:
        if self._recorder.due is not None and self._now() >= self._recorder.due:
            self._recorder.save(self._machine)

    def _pause_s(self) -> float:
        if self._signals or not all(map(self._is_held_back, self._spawns)):
            return 0.0
        dues = (self._machine.deadline, self._recorder.due, self._limits.due, self._usage.due)
        times = [due for due in dues if due is not None]
        polls = self._left or self._machine.state is JobState.STOPPING
        return max(0.0, min([*times, self._now() + (_POLL_S if polls else _LONGEST_SLEEP_S)]) - self._now())

    def _finish(self, state: JobState) -> JobState:
        """Kill what fled from its group, clear up, and save the last status, for a while even if the disk is full."""
        if self._preload is not None:
            self._preload.close()
            self._recorder.set_note(None)
        if not (gone := kill_leftovers(str(self._directory.path))):
            self._recorder.trouble("some processes of this job could not be killed")
        self._output.trim()
        self._directory.clear_tmp()
        remove_own_socket(self._directory)
        remove_keys_of_start(self._directory.path, self._network)  # the launch may have been killed
        deadline = self._now() + _LAST_SAVE_PATIENCE_S
        while not self._recorder.save(self._machine):
            if self._now() >= deadline or not self._directory.path.exists():
                self._recorder.save_in_place(self._machine)
                break
            self._wakeup.sleep(0.5)
        while not gone and os.getppid() != self._guard:  # which is gone: no other process holds the lease until then
            gone = kill_leftovers(str(self._directory.path))
        return state

    def _apply(self, event: Event) -> None:
        for instruction in self._machine.handle(event):
            match instruction:
                case Signal():
                    self._signals.append(instruction)
                case Spawn():
                    self._spawns.append(instruction)
                case Transition():
                    self._record(instruction)
                case FinishJob():
                    self._finished = instruction.state

    def _now(self) -> float:
        return self._clock.now()

    def _record(self, move: Transition) -> None:
        self._recorder.note(move)
        if move.message is not None:
            self._recorder.log(f"{move.subject}: {move.message}")
            self._log_message(move, move.message)
        if move.subject == JOB:
            return
        if move.after in REPLICA_TERMINAL:
            self._ended_for_good.append(move.subject)

    def _give_back(self) -> None:
        """Hand in the shares of replicas that ended; not while strays live, which may still use their devices."""
        if not self._ended_for_good or self._children.strays():
            return
        for replica in self._ended_for_good:
            try:
                give_back(self._directory.lease, replica)
            except (OSError, msgspec.MsgspecError) as error:
                self._recorder.trouble(f"the share of {replica} is held until the job ends: {error}")
        self._ended_for_good.clear()

    def _log_message(self, move: Transition, message: str) -> None:
        """Put a message into the log of its replica: a warning of the job, and why it ends, into all that still run."""
        if move.subject != JOB:
            self._output.write_line(move.subject, message)
        elif move.after in (JobState.STOPPING, move.before):
            for run in self._machine.replicas.values():
                if run.pid is not None:
                    self._output.write_line(run.name, message)
