"""What both sides' threads stand on: one or two sockets, whole messages in and out, and a way to wake a poll.

It must not know what messages mean, nor what the sockets are: local.py has those of this host, network.py ZeroMQ's.
"""

import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from gpusched.channel.values import Array, Limits
from gpusched.errors import ChannelError

__all__ = [
    "LINGER_S",
    "ClientSocket",
    "Part",
    "Received",
    "Route",
    "Socket",
    "Transport",
    "Wake",
    "log",
    "queue_length",
    "start_thread",
    "thread_ended",
]

log: Final = logging.getLogger("gpusched.channel")

LINGER_S: Final = 1.0
_ABSENCE_S: Final = 0.005
_THREAD_BLOCKS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})

Route = bytes | int
"""Which connection of a learner: ZeroMQ's own bytes, or a number of this host's."""

Part = Any
"""One part of a message on its way out: bytes, a memoryview of bytes, or a frame of ZeroMQ's, which has both."""


class Received(NamedTuple):
    """A message that came: from where, its header, and the frames of its arrays.

    `envelope`: the frame of ZeroMQ's that knows whose key it came with; None for what came from this host.
    """

    route: Route
    header: bytes | memoryview
    frames: list[memoryview]
    envelope: Any = None


class Socket(Protocol):
    """One way in and out: to a learner, or to many actors."""

    descriptor: int
    """Readable when there may be a message."""
    reports_once: bool = False
    """Whether a message is reported once only, to the thread that uses the socket next.

    Each turn, of any thread, then has to end with a receive() that returns None.
    """

    def receive(self) -> Received | None:
        """Return the next message, None if there is none."""

    def send(self, route: Route, parts: Sequence[Part]) -> bool:
        """Hand a message over without waiting. False: there is no room, no connection, or no such route."""

    def frames_of(self, arrays: Sequence[Array]) -> list[Part]:
        """Return the arrays' bytes as parts, copied: the one copy on the way out. They may be sent to many."""
        return [array.tobytes() for array in arrays]

    def close(self) -> None:
        """Send what is under way, for a second at the most, and give everything back."""


class ClientSocket(Socket, Protocol):
    """An actor's way to its learner. There is one route, which does not count."""

    def writable(self) -> bool:
        """Return whether there is a connection, and room."""

    def broken(self) -> bool:
        """Return whether it is known that a connection was lost since the last call."""
        return False

    def again_in(self) -> float:
        """Return after how many seconds a send() would try to connect; math.inf if it need not."""
        return math.inf

    def turned_away(self) -> bool:
        """Return whether the learner has refused this actor's key since the last call."""
        return False

    def reconnect(self) -> None:
        """Give the connection up, whatever state it is in, and begin another."""


class Wake:
    """Wakes a poll in another thread; set() is safe in a signal handler and after close()."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        """End the poll that runs, or the next one."""
        if self.descriptor >= 0:
            os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Forget all set() so far."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptor back."""
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)


class Transport:
    """The sockets of one side, and the wake-up beside them. Threads use it in turn, under one lock of theirs.

    The own thread of a side waits in poll(), for messages, `wake` and the time. A thread of the application that waits
    for messages too stands in for it: it waits in follow(), for messages and `nudge`, and a message wakes it alone.
    That spares a change of threads for each message. Where messages come in the moments between, the own thread leaves
    them to the application until that has stayed away for _ABSENCE_S. Both wait without the lock.
    `frames_of` is that of a socket, for any of them.
    """

    def __init__(self) -> None:
        self.wake = Wake()
        self.nudge = Wake()
        self._sockets: list[Socket] = []
        self._turn = 0
        self.reports_once = False
        self.frames_of: Callable[[Sequence[Array]], list[Part]]
        self._listens, self._stands_in, self._sleeps = True, False, False
        self._state = threading.Lock()  # around what poll() and the thread that stands in share
        self._times = self._seen = 0  # how often a thread stood in, and as poll() saw it last
        self._stood_back = -math.inf
        self._poll = select.epoll()
        self._poll.register(self.wake.descriptor, select.EPOLLIN)
        self._follow = select.poll()
        self._follow.register(self.nudge.descriptor, select.POLLIN)

    def add(self, socket: Socket) -> None:
        """Take a socket in, before any thread waits. It is closed with this."""
        self._sockets.append(socket)
        self.reports_once = self.reports_once or socket.reports_once
        self.frames_of = socket.frames_of
        self._poll.register(socket.descriptor, select.EPOLLIN)
        self._follow.register(socket.descriptor, select.POLLIN)

    def poll(self, timeout_s: float) -> None:
        """Wait until a message may be there, or room to write, the wake-up was set, or `timeout_s` passed."""
        with self._state:
            self._sleeps = self._listens or (self._stands_in and self._seen == self._times)
            self._seen = self._times
            timeout_s = timeout_s if self._sleeps else min(timeout_s, _ABSENCE_S)
        woken = False
        for descriptor, _ in self._poll.poll(max(0.0, timeout_s)):
            if descriptor == self.wake.descriptor:
                self.wake.clear()
            else:
                woken = True
        with self._state:
            self._sleeps = False
            absent = not self._stands_in and time.monotonic() - self._stood_back > _ABSENCE_S
            if absent and not self._listens:
                self._listen()
            elif woken and not absent and self._listens:
                self._leave_it()

    def stand_in(self) -> None:
        """Let messages wake this thread, in follow(), instead of the one in poll(). One thread at a time."""
        with self._state:
            self._stands_in = True
            self._times += 1
            if self._listens:
                self._leave_it()

    def follow(self, timeout_s: float | None) -> None:
        """Wait until a message may be there, `nudge` was set, or `timeout_s` passed."""
        for descriptor, _ in self._follow.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))):
            if descriptor == self.nudge.descriptor:
                self.nudge.clear()

    def stand_back(self) -> None:
        """Let messages wake the thread in poll() again, now or soon, one that is there already too."""
        with self._state:
            self._stood_back, self._stands_in = time.monotonic(), False
            if self._sleeps and not (self._listens or self._poll.closed):
                self._listen()

    def _listen(self) -> None:
        """Let messages wake the thread in poll()."""
        for socket in self._sockets:
            with suppress(FileExistsError):  # the handler of a signal raised amid this
                self._poll.register(socket.descriptor, select.EPOLLIN)
        self._listens = True

    def _leave_it(self) -> None:
        """Let messages wake no thread in poll()."""
        self._listens = False
        for socket in self._sockets:
            with suppress(FileNotFoundError):
                self._poll.unregister(socket.descriptor)

    def receive(self) -> Received | None:
        """Return the next message, of each socket in turn; None if there is none."""
        for _ in self._sockets:
            self._turn = (self._turn + 1) % len(self._sockets)
            received = self._sockets[self._turn].receive()
            if received is not None:
                return received
        return None

    def send(self, route: Route, parts: Sequence[Part]) -> bool:
        """Hand a message over without waiting. False: there is no room, no connection, or no such route."""
        for socket in self._sockets:  # noqa: SIM110 (a generator takes longer than all the rest of this)
            if socket.send(route, parts):
                return True
        return False

    def close(self) -> None:
        """Send what is under way, for a second at the most, and give everything back; after the thread has ended."""
        self._poll.close()
        for socket in self._sockets:
            socket.close()
        self.wake.close()
        self.nudge.close()


def queue_length(limits: Limits) -> int:
    """Return how many messages may wait for one peer: beside batches, heartbeats, answers, one set of weights."""
    return limits.in_flight + 64


def thread_ended(error: Exception) -> ChannelError:
    """Return the application's error for one that should not happen; its traceback goes with it."""
    problem = ChannelError(f"the channel's thread ended: {error!r}", "this is a fault in gpusched")
    problem.__cause__ = error
    return problem


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that leaves signals to the main thread."""

    def quiet() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _THREAD_BLOCKS)
        run()

    thread = threading.Thread(target=quiet, name=name, daemon=True)
    thread.start()
    return thread
