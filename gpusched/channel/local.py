"""The sockets of one host: a learner's, with its connections, and an actor's.

No thread stands between the two sides, as libzmq's do: the sender wakes the receiver (docs/decisions/0029). What a
connection breaks off is lost with it; the protocol above sends again what has to be.
"""

import errno
import itertools
import math
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from gpusched.channel.stream import Connection, flush_all
from gpusched.channel.transport import ClientSocket, Part, Received, Route, Socket, log
from gpusched.channel.values import Limits
from gpusched.errors import ChannelError, HostFault, ProtocolError

__all__ = ["LocalClient", "LocalServer"]

_BACKLOG: Final = 1024
_MESSAGES_A_ROUND: Final = 8
_SOONEST_S, _LATEST_S = 0.05, 1.0  # between two tries to connect
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class LocalClient(ClientSocket):
    """An actor's socket: it connects to the learner at `path`, and again whenever that has gone and come back."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._events = select.epoll()
        self.descriptor = self._events.fileno()
        self._connection: Connection | None = None
        self._broken = self._has_warned = False
        self._pause_s, self._again_at = _SOONEST_S, -math.inf

    def receive(self) -> Received | None:
        """Return the next message, None if there is none."""
        connection = self._connection
        if connection is None or connection.drained():
            return None
        try:
            if connection.waits:
                connection.flush()
            parts = connection.receive()
        except (OSError, ProtocolError) as error:
            self._lose(error)
            return None
        if parts is None:
            return None
        self._pause_s = _SOONEST_S
        return Received(0, parts[0], parts[1:])

    def send(self, _route: Route, parts: Sequence[Part]) -> bool:
        """Hand a message over without waiting. False: there is no learner, or it does not read, or has just ended."""
        connection = self._connection or self._connect()
        if connection is None:
            return False
        try:
            return connection.send(parts) and not connection.ended
        except OSError as error:
            self._lose(error)
            return False

    def writable(self) -> bool:
        """Return whether there is a connection, and room."""
        connection = self._connection
        return connection is not None and not (connection.full or connection.ended)

    def broken(self) -> bool:
        """Return whether a connection was lost since the last call."""
        broken, self._broken = self._broken, False
        return broken

    def again_in(self) -> float:
        """Return after how many seconds a send() would try to connect."""
        return math.inf if self._connection is not None else max(0.0, self._again_at - time.monotonic())

    def reconnect(self) -> None:
        """Give the connection up; the next send() begins another."""
        if self._connection is not None:
            self._connection.end()
        self._connection, self._broken = None, True

    def close(self) -> None:
        """Send what waits, for a second at the most, and end the connection."""
        if self._connection is not None:
            flush_all([self._connection])
            self._connection.end()
        self._events.close()

    def _connect(self) -> Connection | None:
        if time.monotonic() < self._again_at:
            return None
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LATEST_S)
        with suppress(OSError), ExitStack() as undo:  # no learner, no descriptor
            stream = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            stream.connect(str(self._path))
            self._connection = Connection(stream, self._limits, self._events)
            undo.pop_all()
        return self._connection

    def _lose(self, error: Exception) -> None:
        if isinstance(error, ProtocolError) and not self._has_warned:
            self._has_warned = True
            log.warning("what came from %s is no message of a learner's: %s", self._path, error.message)
        if isinstance(error, ProtocolError):
            self._again_at = time.monotonic() + _LATEST_S
        self.reconnect()


class LocalServer(Socket):
    """A learner's socket at `path`, and its connections with actors. Raises ChannelError and HostFault."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits = limits
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._door.bind(str(path))
        except OSError as error:
            self._door.close()
            if error.errno == errno.EADDRINUSE:
                raise ChannelError(f"{path} is in use", "stop the process that uses it") from None
            raise HostFault(f"{path}: {error.strerror}", "make its directory writable") from None
        self._door.listen(_BACKLOG)
        self._events = select.epoll()
        self._events.register(self._door, select.EPOLLIN)
        self.descriptor = self._events.fileno()
        self._numbers = itertools.count(1)
        self._routes: dict[int, Connection] = {}
        self._by_descriptor: dict[int, Connection] = {}
        self._ready: deque[Connection] = deque()
        self._is_polled, self._since_polled = False, 0
        self._open_again_at = math.inf
        self._has_warned = False

    def receive(self) -> Received | None:
        """Return the next message, in turn of those that sent one; None if there is none."""
        self._since_polled += 1
        if self._since_polled > _MESSAGES_A_ROUND:  # one that sends without end must not keep the others waiting
            self._find_ready()
        while self._ready or (not self._is_polled and self._find_ready()):
            connection = self._ready[0]  # it stays there meanwhile: the handler of a signal may raise
            try:
                parts = connection.receive()
            except (OSError, ProtocolError) as error:
                self._lose(connection, error)
                continue
            if parts is None or connection.drained():
                self._ready.popleft()
            else:
                self._ready.rotate(-1)
            if parts is not None:
                return Received(connection.route, parts[0], parts[1:])
        self._is_polled = False  # what came meanwhile is reported again
        return None

    def send(self, route: Route, parts: Sequence[Part]) -> bool:
        """Hand a message over without waiting. False: that connection is gone, or the other side does not read."""
        connection = self._routes.get(route) if isinstance(route, int) else None
        if connection is None:
            return False
        try:
            return connection.send(parts)
        except OSError as error:
            self._lose(connection, error)
            return False

    def close(self) -> None:
        """Send what waits, for a second at the most, and end all connections."""
        with suppress(OSError):  # also where a process that was forked off has it too
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        flush_all(list(self._routes.values()))
        for connection in self._routes.values():
            connection.end()
        self._events.close()

    def _find_ready(self) -> bool:
        """Find out which connections have something to read; return whether any has."""
        self._is_polled, self._since_polled = True, 0
        if time.monotonic() >= self._open_again_at:
            self._open_again_at = math.inf
            self._events.modify(self._door, select.EPOLLIN)
        for descriptor, event in self._events.poll(0):
            connection = self._by_descriptor.get(descriptor)
            if connection is None:
                self._accept()
                continue
            if event & select.EPOLLOUT:
                try:
                    connection.flush()
                except OSError as error:
                    self._lose(connection, error)
                    continue
            if event & ~select.EPOLLOUT and connection not in self._ready:
                self._ready.append(connection)
        return bool(self._ready)

    def _accept(self) -> None:
        try:
            stream, _ = self._door.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:  # else it would be reported again and again
                self._open_again_at = time.monotonic() + _LATEST_S
                self._events.modify(self._door, 0)
            return
        stream.setblocking(False)
        connection = Connection(stream, self._limits, self._events, next(self._numbers))
        self._routes[connection.route] = self._by_descriptor[stream.fileno()] = connection

    def _lose(self, connection: Connection, error: Exception) -> None:
        if isinstance(error, ProtocolError) and not self._has_warned:
            self._has_warned = True
            log.warning("a process that connected to the learner was turned away: %s", error.message)
        with suppress(ValueError):
            self._ready.remove(connection)
        if self._routes.pop(connection.route, None) is not None:
            del self._by_descriptor[connection.stream.fileno()]
            connection.end()
