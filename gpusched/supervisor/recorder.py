"""What a supervisor leaves behind while it runs: status.json on change, events.jsonl, and lines in its own log.

A full disk or a missing directory never ends a job: what could not be written is kept, reported, and tried again.
"""

import contextlib
import os
import sys
import time
from collections import deque
from typing import Final

import msgspec

from gpusched.execution.directory import JobDirectory, initial_status
from gpusched.execution.spec import JobSpec
from gpusched.linux.processes import boot_id, seconds_since_boot, start_time
from gpusched.linux.regular_files import NotRegularError
from gpusched.model.plan import Replica
from gpusched.model.status import JOB_TERMINAL, JobStatus, ReplicaStatus
from gpusched.model.usage import Usage
from gpusched.supervisor.events import Transition
from gpusched.supervisor.machine import Machine
from gpusched.supervisor.replica_run import ReplicaRun
from gpusched.supervisor.usage_meter import UsageMeter

__all__ = ["BootClock", "Recorder"]

_SAVE_EVERY_S: Final = 0.05
_RETRY_EVERY_S: Final = 1.0
_KEPT_EVENTS: Final = 10_000


class BootClock:
    """Seconds since boot, with the time that the host slept. The offset to Unix time is taken once."""

    def __init__(self) -> None:
        self._offset = time.time() - self.now()

    def now(self) -> float:
        """Return the seconds since boot."""
        return seconds_since_boot()

    def unix(self, moment: float) -> float:
        """Return a reading of `now` in Unix seconds, to the millisecond."""
        return round(moment + self._offset, 3)


class Recorder:
    """Writes down what the machine went through. `due` is when `save` has something to do, None for never."""

    def __init__(self, directory: JobDirectory, spec: JobSpec, clock: BootClock, meter: UsageMeter) -> None:
        self._directory, self._clock, self._meter = directory, clock, meter
        self._base = msgspec.structs.replace(
            initial_status(directory, spec),
            supervisor_pid=os.getpid(),
            supervisor_start=start_time(os.getpid()),
            boot_id=boot_id(),
            started=clock.unix(clock.now()),
        )
        self._events: deque[dict[str, object]] = deque(maxlen=_KEPT_EVENTS)
        self._problem: str | None = None
        self._events_problem: str | None = None
        self._note: str | None = None
        self._next_save = 0.0
        self._written: tuple[int, ...] | None = None
        self.due: float | None = 0.0

    def note(self, move: Transition) -> None:
        """Take in a move: an event to write, and a status to save soon."""
        event = {"time": self._clock.unix(move.now), **msgspec.to_builtins(move)}
        del event["now"]
        self._events.append({key: value for key, value in event.items() if value is not None})
        self.due = self._next_save

    def remark(self, subject: str, step: str, text: str) -> None:
        """Record something that is no replica's move: as an event, and in the supervisor's log."""
        moment = self._clock.unix(self._clock.now())
        self._events.append({"time": moment, "subject": subject, "after": step, "message": text})
        self.due = self._next_save
        self.log(text)

    def set_note(self, note: str | None) -> None:
        """Have the next status show what the job does meanwhile; None: no note."""
        if note != self._note:
            self._note = note
            self.due = self._next_save

    def enlarged(self, one: Replica) -> None:
        """Have the status show another limit and share of a replica."""
        self._base = msgspec.structs.replace(
            self._base,
            replicas=tuple(
                msgspec.structs.replace(each, limit_mib=one.limit_mib, share_mib=one.share_mib)
                if each.name == one.name
                else each
                for each in self._base.replicas
            ),
        )
        self.due = self._next_save

    def changed(self) -> None:
        """Have the status written soon: something in it is new."""
        self.due = self._next_save

    def trouble(self, problem: str) -> None:
        """Report a fault that need not end the job: in the supervisor's log and in the next status."""
        if problem != self._problem:
            self._problem = problem
            self.due = self._next_save
            self.log(problem)

    def log(self, text: str) -> None:
        """Write a line to the supervisor's log only."""
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def save(self, machine: Machine) -> bool:
        """Write events and status; return whether both are on disk now. What fails is tried again a second later.

        Where events.jsonl cannot be written, or is something else, they wait for that to go, and the status does not.
        """
        try:
            self._append_events()
            self._written = _mark(self._directory.write_status(self.status(machine)))
        except OSError as error:
            self.trouble(f"could not save the job's status: {error.filename or self._directory.path}: {error.strerror}")
            self.due = self._next_save = self._clock.now() + _RETRY_EVERY_S
            return False
        now = self._clock.now()  # a disk that takes its time is not to be kept busy by one job after the other
        self._next_save = now + _SAVE_EVERY_S
        self.due = now + _RETRY_EVERY_S if self._events else None
        return True

    def restore(self) -> None:
        """Have the status written again if something else has taken its place: others could not see how the job is."""
        if self._written not in (None, self._found()) and os.path.lexists(self._directory.path):
            self.due = self._next_save

    def _found(self) -> tuple[int, ...]:
        try:
            return _mark(self._directory.status.lstat())
        except OSError:
            return ()

    def _append_events(self) -> None:
        try:
            if self._events:
                self._directory.append_events(self._events)
                self._events.clear()
        except (NotRegularError, PermissionError) as error:
            problem = f"could not save the job's events: {error.filename}: {error.strerror}"
            if problem != self._events_problem:  # apart from other trouble, which it must not replace at each try
                self._events_problem = problem
                self.log(problem)

    def save_in_place(self, machine: Machine) -> None:
        """Write the last status where the one before it is, after `save` has failed."""
        with contextlib.suppress(OSError):
            if self._directory.overwrite_status(self.status(machine)):
                self.log("the job's last status took the place of the one before it")

    def status(self, machine: Machine) -> JobStatus:
        """Return the job as others see it."""
        usage = self._meter.usage(self._clock.now())
        messages = [text for text in (machine.message, self._problem, self._events_problem) if text]
        return msgspec.structs.replace(
            self._base,
            state=machine.state,
            replicas=tuple(
                self._replica(base, machine.replicas[base.name], usage.get(base.name, ()))
                for base in self._base.replicas
            ),
            ended=self._clock.unix(self._clock.now()) if machine.state in JOB_TERMINAL else None,
            message="; ".join(messages) or None,
            note=self._note,
        )

    def _replica(self, base: ReplicaStatus, run: ReplicaRun, usage: tuple[Usage, ...]) -> ReplicaStatus:
        return msgspec.structs.replace(
            base,
            state=run.state,
            pid=run.pid,
            started=None if run.started is None else self._clock.unix(run.started),
            restarts=run.restarts,
            exit=run.exit,
            since=base.since if run.since is None else self._clock.unix(run.since),
            retry_at=None if run.retry_at is None else self._clock.unix(run.retry_at),
            warning=run.warning,
            usage=usage,
        )


def _mark(file: os.stat_result) -> tuple[int, ...]:
    return file.st_ino, file.st_mode, file.st_mtime_ns  # an inode's number is soon used again
