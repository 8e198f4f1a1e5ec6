"""The channel's socket between hosts: ZeroMQ over tcp, with bounds, and with CURVE where there are keys.

Everything of zmq is mapped to gpusched.errors here. It must not know what messages mean.
"""

import ctypes
import secrets
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import zmq

from gpusched.channel.transport import LINGER_S, ClientSocket, Part, Received, Route
from gpusched.channel.values import Array, Limits
from gpusched.errors import ChannelError, HostFault, UsageError
from gpusched.joining.invitation import only_ipv6
from gpusched.joining.keys import JoinKey, ServerKey, secure_client, secure_server

__all__ = ["NetworkSocket", "read_event"]

_LINGER_MS: Final = round(LINGER_S * 1000)
_NOW: Final = int(zmq.NOBLOCK)  # plain ints: zmq's enumerations take microseconds to combine
_NOW_AND_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)
_WRITABLE: Final = int(zmq.POLLOUT)
_CONNECT_MS: Final = 3000
_EVENT: Final = struct.Struct("=Hi")
_FRAME_OVERHEAD: Final = 64  # what CURVE adds to a frame is 33 bytes
_OLDEST_LIBZMQ: Final = (4, 3, 3)  # CVE-2020-15166, CVE-2021-20234 to 20237


class NetworkSocket(ClientSocket):
    """One socket in its own context, of a learner if `serves`, else of an actor. Threads use it in turn.

    In a thread of the application a signal's handler may raise between two parts of a message: such a one is ended, or
    read to its end, before the next, so that it harms no other.
    """

    reports_once = True  # ZMQ_FD of zmq_getsockopt(3)

    def __init__(self, limits: Limits, *, serves: bool) -> None:
        if zmq.zmq_version_info() < _OLDEST_LIBZMQ:
            raise HostFault(f"libzmq {zmq.zmq_version()} has known holes", "pip install --upgrade pyzmq")
        self._parts: list[zmq.Frame] = []
        self._monitor: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._writing = False
        self._limits, self._serves = limits, serves
        self.context = zmq.Context()
        if serves:
            _hide_routes()
        self._socket = self.context.socket(zmq.ROUTER if serves else zmq.DEALER)
        self.descriptor = int(self._socket.getsockopt(zmq.FD))

    def listen(self, endpoint: str, key: ServerKey | None) -> str:
        """Bind, and return the endpoint that came of it; with a key only for peers that the authenticator lets in.

        Raises ChannelError or UsageError.
        """
        self._set_options(ipv6="[" in endpoint, longest=self._limits.longest("" if key is None else key.public))
        if key is not None:
            secure_server(self._socket, key)
        self._at(endpoint, self._socket.bind)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def connect(self, endpoint: str, key: JoinKey | None = None) -> None:
        """Connect, now or when a learner binds there. Raises UsageError for an endpoint that cannot be."""
        self._set_options(ipv6=only_ipv6(endpoint), longest=self._limits.max_message)
        if key is not None:
            secure_client(self._socket, key)
            self._monitor = self.monitor(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        self._at(endpoint, self._socket.connect)
        self._endpoint = endpoint

    def monitor(self, events: int) -> "zmq.Socket[bytes]":
        """Return a socket that reports these events, for one thread. As long as it is not read, libzmq may wait."""
        return self._socket.get_monitor_socket(events)

    def monitor_no_more(self) -> None:
        """End what monitor() began; from any thread, before the socket that it returned is closed."""
        self._socket.disable_monitor()

    def turned_away(self) -> bool:
        """Return whether the other side has refused this key since the last call.

        Where a peer without keys answered instead, libzmq would not try again. This does.
        """
        refused, again = False, False
        while self._monitor is not None and int(self._monitor.get(_EVENTS)) & _READABLE:
            event, _ = read_event(self._monitor)
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

    def receive(self) -> Received | None:
        """Return the next message, None if there is none."""
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

    def frames_of(self, arrays: Sequence[Array]) -> list[Part]:
        """Return the arrays' bytes, copied: the one copy on the way out. They may be sent to many, from any thread."""
        return [zmq.Frame(array, copy=True) for array in arrays]

    def send(self, route: Route, parts: Sequence[Part]) -> bool:
        """Hand a message over without waiting. False: there is no room, no connection, or no such route.

        libzmq decides on the first part; the others of the same message never wait.
        """
        if self._serves and not isinstance(route, bytes):  # of this host
            return False
        if self._writing:
            self._send([b""])
        self._writing = True
        done = self._send([route, *parts] if self._serves else parts)
        self._writing = False
        return done

    def close(self) -> None:
        """Send what is under way, for a second at the most, and give everything back; after the thread has ended."""
        if self._monitor is not None:
            self.monitor_no_more()
        self.context.destroy(linger=_LINGER_MS)

    def _send(self, parts: Sequence[Part]) -> bool:
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

    def _whole(self) -> Received:
        parts, self._parts = self._parts, []
        route = parts.pop(0).bytes if self._serves else b""
        header = parts[0].buffer if parts else b""
        return Received(route, header, [part.buffer for part in parts[1:]], parts[-1] if parts else None)

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

    def _set_options(self, *, ipv6: bool, longest: int) -> None:
        """Set what goes before bind and connect, for frames of `longest` bytes."""
        queue = 2 * self._limits.in_flight + 16  # for each batch two messages, heartbeats, one set of weights
        options = {
            zmq.IPV6: int(ipv6),
            zmq.CONNECT_TIMEOUT: _CONNECT_MS,
            zmq.TCP_KEEPALIVE: 1,  # so that a NAT on the way does not forget the connection
            zmq.TCP_KEEPALIVE_IDLE: 30,
            zmq.TCP_KEEPALIVE_INTVL: 10,
            zmq.TCP_KEEPALIVE_CNT: 3,
            zmq.LINGER: _LINGER_MS,
            zmq.MAXMSGSIZE: longest + _FRAME_OVERHEAD,
            zmq.SNDHWM: queue,
            zmq.RCVHWM: queue,
            zmq.HEARTBEAT_IVL: max(1, round(self._limits.heartbeat_s * 2000)),
            zmq.HEARTBEAT_TIMEOUT: max(1, round(self._limits.silence_s * 1000)),
            zmq.HANDSHAKE_IVL: 10_000,
            zmq.BACKLOG: 1024,
        }
        if self._serves:
            options[zmq.ROUTER_MANDATORY] = 1  # a lost peer is an error, not silently forgotten
        else:
            options |= {zmq.IMMEDIATE: 1, zmq.RECONNECT_IVL: 50, zmq.RECONNECT_IVL_MAX: 1000}
        for option, value in options.items():
            self._socket.setsockopt(option, value)


def read_event(monitor: "zmq.Socket[bytes]") -> tuple[int, int]:
    """Return the next event of NetworkSocket.monitor() and its value. Raises zmq.Again if there is none."""
    event, value = _EVENT.unpack(monitor.recv_multipart(_NOW)[0])  # zmq.utils.monitor would import asyncio
    return event, value


def _hide_routes() -> None:
    """Let no peer know which routes the next ROUTER gives to its peers.

    They are numbers that follow each other, from rand() on, which libzmq does not seed; a peer may choose its own, and
    if it chose one that is given out later, libzmq ends this process (router.cpp, socket_base.cpp: add_out_pipe).
    """
    ctypes.CDLL(None).srand(ctypes.c_uint(secrets.randbits(32)))
