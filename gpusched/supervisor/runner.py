"""The supervisor of one job: the loop between its machine, its processes and its directory.

It holds no rule of its own: what to do is the machine's answer to what happened.
"""

import datetime as dt
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpusched.contract import attempt_environment, child_environment
from gpusched.model.status import JobState
from gpusched.supervisor.events import (
    Ended,
    Event,
    FinishJob,
    GuardGone,
    Record,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    StopRequested,
    Tick,
)
from gpusched.supervisor.jobdir import JobDirectory
from gpusched.supervisor.kernel import become_subreaper, kill_descendants
from gpusched.supervisor.machine import Machine
from gpusched.supervisor.oom import OomKills, find_counter, read_counter
from gpusched.supervisor.process import Children, Spawner, SpawnError, Wakeup
from gpusched.supervisor.record import BootClock, Clock, Recorder
from gpusched.supervisor.spec import JobSpec

__all__ = ["Effects", "Runner", "supervise"]

_LONGEST_SLEEP_S: Final = 5.0  # what the OOM counter is sampled by; else nothing happens in an idle job
_SWEEP_PATIENCE_S: Final = 5.0
_LAST_SAVE_PATIENCE_S: Final = 10.0


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner does to the world, and what it hears of it. `environ` is what replicas inherit."""

    spawner: Spawner
    wakeup: Wakeup
    clock: Clock
    oom: OomKills
    environ: Mapping[str, str]
    guard_gone: Callable[[], bool]


class Runner:
    """One job from its first replica to its last word."""

    def __init__(self, directory: JobDirectory, spec: JobSpec, effects: Effects) -> None:
        self._directory, self._effects = directory, effects
        self._specs = {one.replica.name: one for one in spec.replicas}
        self._machine = Machine(spec)
        self._recorder = Recorder(directory, spec, effects.clock)
        self._names: dict[int, str] = {}
        self._signals: list[Signal] = []
        self._spawns: list[Spawn] = []
        self._finished: JobState | None = None
        self._stops_told = 0
        self._next_sample = 0.0

    def run(self) -> JobState:
        """Reap, advance, signal, spawn, save; sleep until something happens; and again until the job has ended."""
        while True:
            self._reap()
            self._advance()
            self._signal()
            self._spawn()
            if self._finished is not None:
                return self._finish(self._finished)
            self._save()
            self._effects.wakeup.sleep(self._pause_s())

    def _reap(self) -> None:
        for death in self._effects.spawner.deaths():
            oom = death.signal == signal.SIGKILL and not death.ours and self._effects.oom.claim()
            name = self._names.pop(death.pid)
            self._tell(Ended(replica=name, now=self._now(), code=death.code, signal=death.signal, oom=oom))
        if self._now() >= self._next_sample:
            self._effects.oom.sample()
            self._next_sample = self._now() + _LONGEST_SLEEP_S

    def _advance(self) -> None:
        wakeup = self._effects.wakeup
        while self._stops_told < wakeup.stops:
            kill = self._stops_told > 0
            self._stops_told += 1
            self._tell(StopRequested(now=self._now(), message="stopped on request", kill=kill))
        if self._effects.guard_gone():
            self._tell(GuardGone(now=self._now(), message="the guard of this job was killed"))
        if wakeup.launcher_gone():
            self._tell(StopRequested(now=self._now(), message="stopped because the launch that shows it is gone"))
        self._tell(Tick(now=self._now()))

    def _signal(self) -> None:
        for one in self._signals:
            self._effects.spawner.send(one.pid, signal.SIGKILL if one.kill else signal.SIGTERM)
        self._signals.clear()

    def _spawn(self) -> None:
        spawns, self._spawns = self._spawns, []
        for one in spawns:
            spec = self._specs[one.replica]
            env = child_environment(
                self._effects.environ,
                spec.env,
                attempt_environment(one.attempt),
                {"TMPDIR": str(self._directory.tmp)},
            )
            output = self._open_log(one)
            try:
                pid = self._effects.spawner.spawn(spec, env, output)
            except SpawnError as error:
                self._tell(SpawnFailed(replica=one.replica, message=str(error), now=self._now()))
            else:
                self._names[pid] = one.replica
                self._tell(Spawned(replica=one.replica, pid=pid, now=self._now()))
            finally:
                os.close(output)

    def _save(self) -> None:
        if self._recorder.due is not None and self._now() >= self._recorder.due:
            self._recorder.save(self._machine)

    def _pause_s(self) -> float:
        if self._signals or self._spawns:
            return 0.0
        times = [time for time in (self._machine.deadline, self._recorder.due) if time is not None]
        return max(0.0, min([*times, self._now() + _LONGEST_SLEEP_S]) - self._now())

    def _finish(self, state: JobState) -> JobState:
        """Kill what fled from its group, clear up, and save the last word, for a while even if the disk is full."""
        if not kill_descendants(_SWEEP_PATIENCE_S):
            self._recorder.trouble("some processes of this job could not be killed")
        self._directory.clear_tmp()
        deadline = self._now() + _LAST_SAVE_PATIENCE_S
        while not self._recorder.save(self._machine) and self._now() < deadline and self._directory.path.exists():
            self._effects.wakeup.sleep(0.5)
        return state

    def _tell(self, event: Event) -> None:
        for instruction in self._machine.handle(event):
            match instruction:
                case Signal():
                    self._signals.append(instruction)
                case Spawn():
                    self._spawns.append(instruction)
                case Record():
                    self._recorder.note(instruction.move)
                case FinishJob():
                    self._finished = instruction.state

    def _now(self) -> float:
        return self._effects.clock.now()

    def _open_log(self, spawn: Spawn) -> int:
        """Return a descriptor of the replica's log, with a line that tells the attempts apart, or of /dev/null."""
        path = self._directory.log(spawn.replica)
        when = dt.datetime.fromtimestamp(self._effects.clock.unix(self._now()), dt.UTC)
        line = f"--- {spawn.replica}, attempt {spawn.attempt}, {when:%Y-%m-%d %H:%M:%S} UTC ---\n"
        try:
            output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._recorder.trouble(f"the output of {spawn.replica} is lost: {path}: {error.strerror}")
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(output, line.encode())
        except OSError as error:
            self._recorder.trouble(f"{path}: {error.strerror}")
        return output


def supervise(path: Path, guard: int) -> JobState:
    """Run the job in the directory `path` to its end, as a child of the process `guard`. Raises HostFault."""
    become_subreaper()
    directory = JobDirectory(path)
    spec = directory.read_spec()
    counter = find_counter()
    effects = Effects(
        spawner=Children(),
        wakeup=Wakeup(spec.launcher),
        clock=BootClock(),
        oom=OomKills(lambda: read_counter(counter)),
        environ=dict(os.environ),
        guard_gone=lambda: os.getppid() != guard,
    )
    return Runner(directory, spec, effects).run()
