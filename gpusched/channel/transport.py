"""What both sides' threads stand on: a socket with bounds, whole messages in and out, a way to wake a poll.

Everything of zmq is mapped to gpusched.errors here. It must not know what messages mean.
"""

import ctypes
import logging
import math
import os
import secrets
import select
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import zmq

from gpusched.channel.values import Array, Limits
from gpusched.errors import ChannelError, HostFault, UsageError
from gpusched.joining.invitation import only_ipv6
from gpusched.joining.keys import JoinKey, ServerKey, secure_client, secure_server

__all__ = ["Transport", "Wake", "frames_of", "start_thread", "thread_ended"]

log: Final = logging.getLogger("gpusched.channel")

LINGER_MS: Final = 1000
_NOW: Final = int(zmq.NOBLOCK)  # plain ints: zmq's enumerations take microseconds to combine
_NOW_AND_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)
_WRITABLE: Final = int(zmq.POLLOUT)
_LOCAL_THREAD, _NETWORK_THREAD = 1, 2  # of two: bits of ZMQ_AFFINITY
_CONNECT_MS: Final = 3000
_MONITORED: Final = struct.Struct("=Hi")
_FRAME_OVERHEAD: Final = 64  # what CURVE adds to a frame is 33 bytes
_OLDEST_LIBZMQ: Final = (4, 3, 3)  # CVE-2020-15166, CVE-2021-20234 to 20237
_THREAD_BLOCKS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})


def frames_of(arrays: Sequence[Array]) -> list[zmq.Frame]:
    """Return the arrays' bytes as frames: the one copy on the way out. A frame may be sent to many, from any thread."""
    return [zmq.Frame(array, copy=True) for array in arrays]


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
    """One socket in its own context, and the wake-up beside it. Threads use it in turn, under one lock of theirs.

    libzmq reports a message once, to the thread that uses the socket next: so each turn at the socket, of any
    thread, ends with a receive() that returns None.

    The own thread of a side waits in poll(), for messages, `wake` and the time. A thread of the application that waits
    for messages too stands in for it: it waits in follow(), for messages and `nudge`, and until it stands back, a
    message wakes it alone. That spares a change of threads for each message. Both wait without the lock.

    In a thread of the application a signal's handler may raise between two parts of a message: such a one is ended, or
    read to its end, before the next, so that it harms no other.

    `network`: a thread of libzmq does nothing but what comes over the network, and its keys: peers on this host
    wait for none of it.
    """

    def __init__(self, kind: int, limits: Limits, *, network: bool = False) -> None:
        if zmq.zmq_version_info() < _OLDEST_LIBZMQ:
            raise HostFault(f"libzmq {zmq.zmq_version()} has known holes", "pip install --upgrade pyzmq")
        self.wake = Wake()
        self.nudge = Wake()
        self._parts: list[zmq.Frame] = []
        self._monitor: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._writing = False
        self._limits = limits
        self.context = zmq.Context(io_threads=2 if network else 1)
        if kind == zmq.ROUTER:
            _hide_routes()
        self._socket = self.context.socket(kind)
        if network:
            self._socket.setsockopt(zmq.AFFINITY, _LOCAL_THREAD)
        self._set_options(kind, limits)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLIN)
        self._poll.register(self.wake.descriptor, select.EPOLLIN)
        self._follow = select.poll()
        self._follow.register(self._descriptor, select.POLLIN)
        self._follow.register(self.nudge.descriptor, select.POLLIN)

    def bind(self, endpoint: str) -> str:
        """Bind, and return the endpoint that came of it. Raises ChannelError or UsageError."""
        self._at(endpoint, self._socket.bind)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def listen(self, endpoint: str, key: ServerKey | None) -> str:
        """Bind this tcp endpoint, beside others; with a key only for peers that the gate lets in. Errors as of bind."""
        self._reach_out(ipv6="[" in endpoint)
        if key is not None:
            self._socket.setsockopt(zmq.AFFINITY, _NETWORK_THREAD)
            self._socket.setsockopt(zmq.MAXMSGSIZE, self._limits.longest(key.public) + _FRAME_OVERHEAD)
            self._socket.setsockopt(zmq.SNDHWM, _queue(self._limits))
            secure_server(self._socket, key)
        return self.bind(endpoint)

    def connect(self, endpoint: str, key: JoinKey | None = None) -> None:
        """Connect, now or when a learner binds there. Raises UsageError for an endpoint that cannot be."""
        if endpoint.startswith("tcp:"):
            self._reach_out(ipv6=only_ipv6(endpoint))
        if key is not None:
            self._socket.setsockopt(zmq.MAXMSGSIZE, self._limits.max_message + _FRAME_OVERHEAD)
            secure_client(self._socket, key)
            self._monitor = self.monitor(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        self._at(endpoint, self._socket.connect)
        self._endpoint = endpoint

    def monitor(self, events: int) -> "zmq.Socket[bytes]":
        """Return a socket that reports these events, for one thread. As long as it is not read, libzmq may wait."""
        where = f"inproc://monitor-{id(self)}"
        self._socket.monitor(where, events)
        pair = self.context.socket(zmq.PAIR)
        pair.connect(where)
        return pair

    def monitor_no_more(self) -> None:
        """End what monitor() began; from any thread, before the socket that it returned is closed."""
        self._socket.disable_monitor()

    def turned_away(self) -> bool:
        """Return whether the other side has refused this key since the last call.

        Where a peer without keys answered instead, libzmq would not try again. This does.
        """
        refused, again = False, False
        while self._monitor is not None and int(self._monitor.get(_EVENTS)) & _READABLE:
            event, _ = _MONITORED.unpack(self._monitor.recv_multipart(_NOW)[0])
            refused = refused or event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            again = again or event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        if again and not refused:
            self.reconnect()
        return refused

    def reconnect(self) -> None:
        """Give the connection up, whatever state it is in, and begin another."""
        with suppress(zmq.ZMQError):
            self._socket.disconnect(self._endpoint)
        self._socket.setsockopt(zmq.IPV6, int(only_ipv6(self._endpoint)))  # a name may be known only now
        self._socket.connect(self._endpoint)

    def poll(self, timeout_s: float) -> None:
        """Wait until a message may be there, or room to write, the wake-up was set, or `timeout_s` passed."""
        for descriptor, _ in self._poll.poll(max(0.0, timeout_s)):
            if descriptor == self.wake.descriptor:
                self.wake.clear()

    def stand_in(self) -> None:
        """Let messages wake this thread, in follow(), instead of the one in poll(). One thread at a time."""
        self._poll.unregister(self._descriptor)

    def follow(self, timeout_s: float | None) -> None:
        """Wait until a message may be there, `nudge` was set, or `timeout_s` passed."""
        for descriptor, _ in self._follow.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))):
            if descriptor == self.nudge.descriptor:
                self.nudge.clear()

    def stand_back(self) -> None:
        """Let messages wake the thread in poll() again, one that is there already too."""
        if not self._poll.closed:
            with suppress(FileExistsError):  # an error came before it stood in
                self._poll.register(self._descriptor, select.EPOLLIN)

    def receive(self) -> list[zmq.Frame] | None:
        """Return the parts of the next message, None if there is none."""
        if self._parts:
            if not self._socket.get(zmq.RCVMORE):
                return self._whole()
        elif not int(self._socket.get(_EVENTS)) & _READABLE:  # cheaper than to catch Again
            return None
        while not self._parts or self._parts[-1].more:
            self._parts.append(self._socket.recv(_NOW, copy=False))
        return self._whole()

    def writable(self) -> bool:
        """Return whether there is room and a connection; a receive() that returned None may have taken that news."""
        return bool(int(self._socket.get(_EVENTS)) & _WRITABLE)

    def send(self, parts: Sequence[bytes | zmq.Frame]) -> bool:
        """Hand a message over without waiting. False: there is no room, no connection, or no such route.

        libzmq decides on the first part; the others of the same message never wait.
        """
        if self._writing:
            self._send([b""])
        self._writing = True
        done = self._send(parts)
        self._writing = False
        return done

    def close(self) -> None:
        """Send what is under way, for a second at the most, and give everything back; after the thread has ended."""
        self._poll.close()
        if self._monitor is not None:
            self.monitor_no_more()
        self.context.destroy(linger=LINGER_MS)
        self.wake.close()
        self.nudge.close()

    def _send(self, parts: Sequence[bytes | zmq.Frame]) -> bool:
        try:
            last = len(parts) - 1
            for index, part in enumerate(parts):
                self._socket.send(part, _NOW_AND_MORE if index < last else _NOW)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def _whole(self) -> list[zmq.Frame]:
        parts, self._parts = self._parts, []
        return parts

    def _at(self, endpoint: str, meet: Callable[[str], object]) -> None:
        try:
            meet(endpoint)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                raise ChannelError(
                    f"{endpoint} is in use", "stop the process that uses it, or give another endpoint"
                ) from None
            raise UsageError(
                f"{endpoint}: {error.strerror}", "use ipc:///absolute/path or tcp://127.0.0.1:PORT"
            ) from None

    def _reach_out(self, *, ipv6: bool) -> None:
        """Set what a network asks for: to learn that it failed, and not to be forgotten by a NAT on the way."""
        for option, value in (
            (zmq.IPV6, int(ipv6)),
            (zmq.CONNECT_TIMEOUT, _CONNECT_MS),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 30),
            (zmq.TCP_KEEPALIVE_INTVL, 10),
            (zmq.TCP_KEEPALIVE_CNT, 3),
        ):
            self._socket.setsockopt(option, value)

    def _set_options(self, kind: int, limits: Limits) -> None:
        options = {
            zmq.LINGER: LINGER_MS,
            zmq.MAXMSGSIZE: limits.max_message,
            zmq.SNDHWM: limits.in_flight + 64,  # beside batches: acknowledgements, heartbeats, one set of weights
            zmq.RCVHWM: limits.in_flight + 64,
            zmq.HEARTBEAT_IVL: max(1, round(limits.heartbeat_s * 2000)),
            zmq.HEARTBEAT_TIMEOUT: max(1, round(limits.silence_s * 1000)),
            zmq.HANDSHAKE_IVL: 10_000,
            zmq.BACKLOG: 1024,
        }
        if kind == zmq.ROUTER:
            options[zmq.ROUTER_MANDATORY] = 1  # a lost peer is an error, not silently forgotten
        else:
            options |= {zmq.IMMEDIATE: 1, zmq.RECONNECT_IVL: 50, zmq.RECONNECT_IVL_MAX: 1000}
        for option, value in options.items():
            self._socket.setsockopt(option, value)


def _hide_routes() -> None:
    """Let no peer know which routes the next ROUTER gives to its peers.

    They are numbers that follow each other, from rand() on, which libzmq does not seed; a peer may choose its own, and
    if it chose one that is given out later, libzmq ends this process (router.cpp, socket_base.cpp: add_out_pipe).
    """
    ctypes.CDLL(None).srand(ctypes.c_uint(secrets.randbits(32)))


def _queue(limits: Limits) -> int:
    """Return how many messages may wait for an actor elsewhere: for each batch two, heartbeats, one set of weights."""
    return 2 * limits.in_flight + 16


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
