"""The daemon's one loop of named steps. Signals only set a flag; nothing in it waits but `_sleep`.

An answer goes out when what it promises is on disk: all that arrived in one turn is one transaction.
"""

import contextlib
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

import zmq

from gpusched.control.messages import Answer, Submitted
from gpusched.daemon.arrays import finish_arrays, take_up_held
from gpusched.daemon.deliveries import Deliveries
from gpusched.daemon.explanation import work_on_outlooks
from gpusched.daemon.handlers import Handlers
from gpusched.daemon.housekeeping import Housekeeping
from gpusched.daemon.lifecycle import (
    check_running,
    check_starts,
    discard,
    force_kills,
    order_stop,
    spawn_prepared,
)
from gpusched.daemon.monitor import DeviceMonitor
from gpusched.daemon.queue import Queue
from gpusched.daemon.recovery import Adoption, reconcile
from gpusched.daemon.server import Asked, Server, refusal
from gpusched.daemon.service_notify import Notifier
from gpusched.daemon.state import DaemonState
from gpusched.daemon.stopping import stop_ownerless
from gpusched.errors import GpuschedError, HostFault
from gpusched.model.status import JobState

__all__ = ["Loop", "Signals"]

_LOG: Final = logging.getLogger(__name__)
_MOST_AT_ONCE: Final = 128
_LONGEST_SLEEP_S: Final = 1.0
_LONGEST_HEARING_S: Final = 0.01  # one peer that asks without end must not keep the others waiting
_OWN_EVERY_S: Final = 3.0


class Signals:
    """SIGTERM and SIGINT ask for the end; SIGCHLD wakes. `wakeup` is readable after a signal."""

    def __init__(self) -> None:
        self.asked_to_end = False
        self.wakeup, outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)

    def clear(self) -> None:
        """Empty the pipe that woke the loop."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakeup, 4096):
                pass

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_end = True


class Loop:
    """Turns until `signals` ask for the end, or until `is_own` is False: this daemon has lost its state directory."""

    def __init__(
        self,
        state: DaemonState,
        server: Server,
        signals: Signals,
        monitor: DeviceMonitor,
        notifier: Notifier,
        is_own: Callable[[], bool],
    ) -> None:
        self._state, self._server, self._monitor = state, server, monitor
        self._notifier, self._is_own = notifier, is_own
        self._signals = signals
        self._adoption = Adoption(state)
        self._handlers = Handlers(state, server, self._adoption)
        self._queue = Queue(state)
        self._housekeeping = Housekeeping(state)
        self._deliveries = Deliveries(state.jobs.events, state.spawn_delivery)
        self._pending: list[tuple[Asked, Answer]] = []
        self._next_own = 0.0
        self._logged = set[str]()

    def begin(self) -> None:
        """Find out what happened while no daemon ran. On a full disk too: the job that fills it may need a stop."""
        for job in self._state.jobs.live.values():
            self._state.meter.load(job.id, job.measured)
            self._state.idleness.load(job.id, job.quiet)
        reconcile(self._state, time.monotonic())
        self._adoption.scan()
        self._state.jobs.save(time.monotonic())
        self._notifier.ready()

    def run(self) -> None:
        """Receive, apply, watch, check the devices and the queue, start, answer, sleep; and again."""
        steps: dict[str, Callable[[float], object]] = {
            "receive": self._receive,
            "save_and_answer": self._save_and_answer,
            "reap": self._reap,
            "watch": self._watch,
            "devices": self._monitor.poll,
            "schedule": self._queue.run_pass,
            "save_and_act": self._save_and_act,
            "deliver": self._deliver,
            "explain": lambda _now: work_on_outlooks(self._state),
            "answer_waiting": self._answer_waiting,
            "maintain": self._maintain,
            "tidy": self._housekeeping.step,
        }
        while not (self._state.over or self._signals.asked_to_end):
            for name, step in steps.items():
                self._guarded(name, step)
            self._sleep()
        self._notifier.stopping()
        self._guarded("keep", lambda _now: self._monitor.keep())
        self._save_and_act(time.monotonic())
        self._answer_waiting(time.monotonic())
        self._state.remove_left_sockets()

    def _guarded(self, name: str, step: Callable[[float], object]) -> None:
        """Run one step, with the monotonic time. An internal error in it is logged, and the others go on."""
        try:
            step(time.monotonic())
        except Exception as error:  # noqa: BLE001 (the last line of defence)
            what = f"{name}: {type(error).__name__}: {error}"
            self._state.problems[name] = f"internal error in {what}; see daemon.log"
            if what not in self._logged:
                self._logged.add(what)
                _LOG.exception("internal error in %s", what)

    def _receive(self, now: float) -> None:
        for asked in self._server.receive(_MOST_AT_ONCE, _LONGEST_HEARING_S):
            answer = self._handlers.handle(asked, now)
            if answer is not None:
                self._pending.append((asked, answer))

    def _save_and_answer(self, now: float) -> None:
        refused = {job.id: job for job in self._state.jobs.save(now)}
        pending, self._pending = self._pending, []
        for asked, answer in pending:
            if isinstance(answer, Submitted) and answer.id in refused:
                self._server.answer(asked, refusal(self._not_taken()))
                discard(refused[answer.id])
            else:
                self._server.answer(asked, answer)

    def _reap(self, now: float) -> None:
        """Learn which guards among our children have ended, and which of the fork server's."""
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._state.starts.guard_ended(pid)
        self._state.starts.receive(now)

    def _watch(self, now: float) -> None:
        check_starts(self._state, now)
        check_running(self._state, now)
        force_kills(self._state, now)
        finish_arrays(self._state)
        if now >= self._adoption.due():
            self._adoption.scan()

    def _save_and_act(self, now: float) -> None:
        """Save; then start what is saved. A stop is not held up by a full disk: then only a crash would forget it."""
        take_up_held(self._state)
        self._state.jobs.save(now)
        if not self._state.jobs.unsaved:
            spawn_prepared(self._state, time.monotonic())
        orders, self._state.orders = self._state.orders, []
        for job_id, kill in orders:
            job = self._state.jobs.live.get(job_id)
            if job is not None:
                self._state.contain(job_id, "the stop", partial(order_stop, self._state, job, kill=kill))

    def _deliver(self, now: float) -> None:
        if self._deliveries.step(now):
            self._state.jobs.save(now)

    def _answer_waiting(self, now: float) -> None:
        for asked, answer in self._state.waiting.ready(now):
            self._server.answer(asked, answer)

    def _maintain(self, now: float) -> None:
        self._notifier.ping()
        if now < self._next_own:
            return
        self._next_own = now + _OWN_EVERY_S
        self._state.remove_left_sockets()
        stop_ownerless(self._state)
        states = [job.state for job in self._state.jobs.live.values()]
        waiting = states.count(JobState.QUEUED)
        self._notifier.status(f"jobs: {len(states) - waiting} on their way, {waiting} in the queue")
        if not self._is_own():
            _LOG.warning("the state directory is gone, or another daemon has it: this one ends")
            self._state.over = True
            return
        try:
            self._server.mend()
            self._state.problems.pop("socket", None)
        except HostFault as error:
            if self._state.problems.get("socket") != str(error):
                _LOG.warning("no client can reach the daemon: %s", error)
            self._state.problems["socket"] = str(error)

    def _sleep(self) -> None:
        now = time.monotonic()
        moments = (
            now if self._state.prepared and not self._state.jobs.unsaved else None,
            now if self._state.outlooks else None,
            self._state.starts.due(),
            self._state.watch.due(),
            self._state.waiting.due(),
            self._queue.due(),
            self._adoption.due(),
            self._monitor.due(),
            self._deliveries.due(),
        )
        until = min([now + _LONGEST_SLEEP_S, *(moment for moment in moments if moment is not None)])
        if self._notifier.longest_sleep_s is not None:
            until = min(until, now + self._notifier.longest_sleep_s)
        poller: Any = zmq.Poller()
        poller.register(self._server.socket, zmq.POLLIN)
        guards = list(self._state.watch.descriptors())
        own = [self._signals.wakeup, self._state.devices.finished, *self._deliveries.descriptors()]
        for descriptor in (*own, *self._state.starts.descriptors(), *guards):
            poller.register(descriptor, zmq.POLLIN)
        patience_ms = math.ceil(1000 * max(0.0, until - now))  # rounded down, it would wake too soon, and again
        for ready, _ in poller.poll(patience_ms):
            if ready == self._signals.wakeup:
                self._signals.clear()
            elif ready in guards:
                self._state.watch.readable(ready, time.monotonic())

    def _not_taken(self) -> GpuschedError:
        return HostFault(self._state.jobs.problem or "the job could not be saved", "no job is taken until it is mended")
