"""The learner's thread: it answers actors while the application trains, and never takes more than was agreed.

It owns the threads and the lock; learner_protocol.py has the protocol. The application's side (learner.py) puts weights
in, takes batches out, and ends the job; its messages to actors go out from its own thread if the socket
is free at that moment.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from gpusched.channel.framing import extent
from gpusched.channel.learner_protocol import LearnerProtocol
from gpusched.channel.messages import AnswerHeader, ArraySpec, Bye
from gpusched.channel.registry import Waiting
from gpusched.channel.remote.hosts import Hosts
from gpusched.channel.shm.segment import SMALLEST, WeightsSegment, can_share_weights
from gpusched.channel.shm.weights_pool import Published
from gpusched.channel.transport import Part, Transport, thread_ended
from gpusched.channel.values import ActorStatus, Array, Batch, Limits
from gpusched.errors import ChannelError

if TYPE_CHECKING:
    from gpusched.channel.remote.authentication import ZapAuthenticator

__all__ = ["LearnerThread"]

_FAREWELL_S: Final = 2.0
_STANDS_BACK_S: Final = 1.0
_WRITE_HOSTS_S: Final = 1.0


class LearnerThread(LearnerProtocol):
    """What run() does in its thread, and the few things that other threads may do to it."""

    def __init__(
        self, link: Transport, limits: Limits, hosts: Hosts, authenticator: "ZapAuthenticator | None" = None
    ) -> None:
        super().__init__(link, limits, hosts, authenticator)
        self.failure: ChannelError | None = None
        self._lock = threading.Lock()  # around the socket and all that LearnerProtocol has
        self._inbox: SimpleQueue[Waiting | None] = SimpleQueue()
        self._standing_in = threading.Lock()
        self._stand_in: int | None = None
        self._write_hosts_at = 0.0
        self._ended = False

    # What other threads may call

    def publish(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array]) -> int:
        """Replace the weights by a copy of these; return their version."""
        segment = self._shared(specs, arrays)
        copied = self._link.frames_of(arrays) if segment is None else []
        with self._lock:
            self._floor += 1
            self._published = Published(self._floor, specs, segment, copied, self._link.frames_of)
            version = self._floor
            if segment is not None:
                self._pool.put(segment)
        self._speak()
        return version

    @property
    def version(self) -> int:
        """The version of the newest weights, 0 before the first."""
        with self._lock:
            return 0 if self._published is None else self._published.version

    def next(self, end: float | None) -> Waiting | None:
        """Return the next batch, None after stop(). Raises queue.Empty at `end`, a time of time.monotonic().

        While the inbox is empty, one of the threads that wait here stands in for the loop.
        """
        if not self._inbox.empty():
            with suppress(Empty):  # another thread was quicker
                return self._inbox.get_nowait()
        if not self._standing_in.acquire(blocking=False):
            return self._inbox.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        try:
            self._stand_in = threading.get_ident()
            self._link.stand_in()
            while True:
                if not self._inbox.empty():
                    try:
                        return self._inbox.get_nowait()
                    except Empty:  # another thread was quicker
                        pass
                if self._taken:  # questions that are not answered yet
                    with self._lock:
                        self._guarded(self._send_due)
                left = None if end is None else end - time.monotonic()
                self._link.follow(left)
                with self._lock:
                    self._guarded(self._listen if self._authenticator is None else self._turn)
                if left is not None and left <= 0:
                    return self._inbox.get_nowait()
        finally:
            self._link.stand_back()
            self._stand_in = None
            self._standing_in.release()

    def stop(self) -> None:
        """End a next(), now or later. Safe in a signal handler."""
        self._inbox.put(None)
        self._link.nudge.set()

    def take(self, waiting: Waiting, *, asks: bool) -> None:
        """Note that the application took this batch: its actor may send another. One that `asks` learns by the answer.

        Where that is long in coming, the next turn notifies its actor.
        """
        waiting.batch = None  # it is the application's now, and so is its memory
        self._taken.append(waiting)
        if not asks:
            self._speak()

    def answer(self, batch: Batch, header: AnswerHeader, frames: list[Part]) -> None:
        """Send this to the process that sent `batch`, if it is still there."""
        self._answers.append((batch, header, frames))
        self._speak()

    def status(self) -> tuple[ActorStatus, ...]:
        """Return all actors ever seen."""
        with self._lock:
            return self._registry.status(time.monotonic())

    def end(self, *, over: bool) -> None:
        """End the thread; `over`: the actors learn that there will be no other learner."""
        self._over = over
        self._ended = True
        self._link.wake.set()

    def close_link(self) -> None:
        """Give the socket back, after the thread has ended."""
        got = [lock for lock in (self._standing_in, self._lock) if lock.acquire(timeout=_STANDS_BACK_S)]
        self._link.close()
        for lock in got:
            lock.release()

    # The thread

    def run(self) -> None:
        """Serve until end(). An error that should not happen ends the loop and shows in `failure`."""
        try:
            while not self._ended and self.failure is None:
                self._link.poll(min(self._limits.heartbeat_s, max(0.0, self._next_news - time.monotonic())))
                with self._lock:
                    self._turn()
                self._write_hosts(time.monotonic())
            if self._over:
                self._part()
            self._write_hosts(math.inf)
        except Exception as error:  # noqa: BLE001 (whatever it is, the application must get it)
            self._fail(error)
        finally:
            with self._lock:
                self._borrowed.close()
                self._published = None
                self._pool.clear()

    def _shared(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array]) -> WeightsSegment | None:
        """Copy weights to where actors on this host can see them. None: frames are as quick, or there is no such place.

        The thread that publishes copies, without the lock.
        """
        size = extent(specs)
        if size < SMALLEST or not self._limits.share_memory:
            return None
        with self._lock:
            segment = self._pool.take(size)
        if segment is not None:
            segment.write(specs, arrays)
            return segment
        try:
            return WeightsSegment(specs, arrays) if can_share_weights() else None
        except OSError:  # no memory, no descriptor: the sockets are left
            return None

    def _speak(self) -> None:
        """Take a turn in this thread: it is the shorter way. If the loop has the socket, it is woken to take one."""
        if not self._lock.acquire(blocking=False):
            self._link.wake.set()
            return
        try:
            self._guarded(self._turn if self._link.reports_once else self._send_due)
        finally:
            self._lock.release()

    def _write_hosts(self, now: float) -> None:
        """Write which hosts joined and what they sent, once a second at the most; without the lock: disks wait."""
        if now < self._write_hosts_at:
            return
        self._write_hosts_at = now + _WRITE_HOSTS_S
        with self._lock:
            news = self._hosts.news(self._registry.status(time.monotonic())) if self._hosts else None
        if news is not None:
            self._hosts.write(news)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            if not self._ended and self.failure is None:
                step()
        except Exception as error:  # noqa: BLE001 (as in run)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = thread_ended(error)
        self.stop()

    def _part(self) -> None:
        """Notify all actors that it is over, and wait a moment for the answer of each.

        A connection that breaks takes with it what its other end has not read: libzmq with ZMQ_IMMEDIATE, and TCP.
        """
        until = time.monotonic() + _FAREWELL_S
        with self._lock:
            for peer in self._registry.connections():
                self._send(peer, Bye())
        while self._registry.connections() and (left := until - time.monotonic()) > 0:
            self._link.poll(left)
            with self._lock:
                self._listen()

    def _arrived(self, waiting: Waiting) -> None:
        self._inbox.put(waiting)
        if self._stand_in not in {None, threading.get_ident()}:
            self._link.nudge.set()
