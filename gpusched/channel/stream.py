"""Whole messages over a stream socket of the kernel: what a connection of one host does, on either side.

A message is a prefix (a magic number, the number of parts, the bytes of each) and its parts. One call of the kernel
sends it, and one receives it. It must not know what the parts mean, nor who connects to whom.
"""

import errno
import functools
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from gpusched.channel.messages import MAX_FRAMES, MAX_HEADER
from gpusched.channel.transport import LINGER_S, Part, queue_length
from gpusched.channel.values import Limits
from gpusched.errors import ProtocolError

__all__ = ["Connection", "flush_all"]

_MAGIC: Final = int.from_bytes(b"gpu1", "little")
_PREFIX: Final = struct.Struct("<II")
_BUFFER: Final = 32 << 10
_MOST_PARTS: Final = 1 + MAX_FRAMES


class Connection:
    """One end of a stream: whole messages in, and out, with those that wait because the other side does not read.

    `events` reports it: when there is something to read, and while messages wait, when there is room.
    The handler of a signal may raise amid a message. `_torn` is true meanwhile: such a connection is given up.
    `ended`: a message could not be sent, because the other side has ended; what it had sent can still be received.
    """

    def __init__(self, stream: socket.socket, limits: Limits, events: select.epoll, route: int = 0) -> None:
        self.route: Final = route
        self.stream: Final = stream
        self._events: Final = events
        self._awaits_room = False
        self._longest: Final = limits.max_message + MAX_HEADER
        self._most_waiting: Final = queue_length(limits)
        self._bytes = memoryview(bytearray(_BUFFER))
        self._start = self._end = 0
        self._sizes: Sequence[int] = ()
        self._parts: list[memoryview] = []
        self._block: memoryview | None = None
        self._filled = 0
        self._empty = self._torn = self.ended = False
        self._waiting: deque[list[Part]] = deque()
        events.register(stream, select.EPOLLIN)

    @property
    def full(self) -> bool:
        """Whether as many messages wait as may."""
        return len(self._waiting) >= self._most_waiting

    @property
    def waits(self) -> bool:
        """Whether a message waits until the other side reads."""
        return bool(self._waiting)

    def receive(self) -> list[memoryview] | None:
        """Return the parts of the next message, None if not all of it is there.

        Raises OSError when the connection has ended, ProtocolError for what cannot be a message.
        """
        self._tear()
        while not ((self._sizes or (self._start < self._end and self._read_prefix())) and self._fill()):
            if not self._read():
                self._torn = False
                return None
        parts, self._parts, self._sizes = self._parts, [], ()
        self._torn = False
        return parts

    def drained(self) -> bool:
        """Return, once, whether receive() would find nothing: until `events` reports more it need not be called."""
        drained = self._empty and self._start == self._end
        if drained:
            self._empty = False
        return drained

    def end(self) -> None:
        """End the connection, also where a process that was forked off has it too: both sides see the end."""
        self._events.unregister(self.stream)
        with suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()

    def send(self, parts: Sequence[Part]) -> bool:
        """Send a message, or keep it until there is room. False: too many wait already.

        What cannot be sent any more is lost, as what is on its way; receive() gives what came before, and then the end.
        Raises OSError after a signal amid a message.
        """
        self._tear()
        if self._waiting:
            self._flush()
            if self.full:
                self._torn = False
                return False
        whole = [_prefix(len(parts)).pack(_MAGIC, len(parts), *map(len, parts)), *parts]
        if self._waiting or not self._write(whole, sum(map(len, whole))):
            self._waiting.append(whole)
            self._await_room()
        self._torn = False
        return True

    def flush(self) -> None:
        """Send what waits, as far as there is room. Raises OSError after a signal amid a message."""
        self._tear()
        self._flush()
        self._torn = False

    def _flush(self) -> None:
        while self._waiting and self._write(self._waiting[0], sum(map(len, self._waiting[0]))):
            self._waiting.popleft()
        self._await_room()

    def _await_room(self) -> None:
        if self._awaits_room != self.waits:
            self._awaits_room = self.waits
            self._events.modify(self.stream, select.EPOLLIN | select.EPOLLOUT * self.waits)

    def _write(self, parts: list[Part], size: int) -> bool:
        """Write what there is room for of `size` bytes; return whether that was all. What is left stays in `parts`."""
        try:
            sent = self.stream.sendmsg(parts, (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.ended, sent = True, size
        if sent == size:
            return True
        while sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        parts[0] = memoryview(parts[0])[sent:]
        return False

    def _read(self) -> bool:
        """Read what there is; return whether there was anything. After less than there was room for it is not asked."""
        if self._empty:
            self._empty = False
            return False
        if self._start == self._end:
            self._start = self._end = 0
        into = self._bytes[self._end :] if self._block is None else self._block[self._filled :]
        try:
            count = self.stream.recv_into(into)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionResetError(errno.ECONNRESET, "the other side has ended")
        if self._block is None:
            self._end += count
        else:
            self._filled += count
        self._empty = count < len(into)
        return True

    def _tear(self) -> None:
        if self._torn:
            raise ConnectionResetError(errno.ECONNRESET, "a signal came amid a message")
        self._torn = True

    def _read_prefix(self) -> bool:
        """Take the sizes of the next message's parts out of the buffer; return whether they are there."""
        here = self._end - self._start
        if here >= _PREFIX.size:
            magic, count = _PREFIX.unpack_from(self._bytes, self._start)
            if magic != _MAGIC or not 0 < count <= _MOST_PARTS:
                raise ProtocolError("it is not of this version of gpusched")
            prefix = _prefix(count)
            if here >= prefix.size:
                self._sizes = prefix.unpack_from(self._bytes, self._start)[2:]
                self._start += prefix.size
                if sum(self._sizes) > self._longest:
                    raise ProtocolError(f"a message of {sum(self._sizes)} bytes is over the {self._longest} allowed")
                return True
        self._bytes[:here] = self._bytes[self._start : self._end]
        self._start, self._end = 0, here
        return False

    def _fill(self) -> bool:
        """Move the parts out of the buffer; return whether all of the message is there."""
        for size in self._sizes[len(self._parts) :]:
            stop = self._start + size
            if self._block is None and stop <= self._end:
                self._parts.append(memoryview(bytearray(self._bytes[self._start : stop])))
                self._start = stop
                continue
            if self._block is None:  # the rest of this part is read into its place
                self._block, self._filled = _memory(size), self._end - self._start
                self._block[: self._filled] = self._bytes[self._start : self._end]
                self._start = self._end = 0
            if self._filled < size:
                return False
            self._parts.append(self._block)
            self._block = None
        return True


def _memory(size: int) -> memoryview:
    try:
        return np.empty(size, np.uint8).data
    except MemoryError:
        raise ProtocolError(f"there is no memory for a frame of {size} bytes") from None


@functools.cache
def _prefix(count: int) -> struct.Struct:
    """Return the prefix of a message of `count` parts."""
    return struct.Struct(f"<II{count}Q")


def flush_all(connections: Sequence[Connection]) -> None:
    """Wait until the other sides have read what waits for them, for a second at the most."""
    until = time.monotonic() + LINGER_S
    left = {connection.stream.fileno(): connection for connection in connections if connection.waits}
    room = select.poll()
    for descriptor in left:
        room.register(descriptor, select.POLLOUT)
    while left and (still := until - time.monotonic()) > 0:
        for descriptor, _ in room.poll(still * 1000):
            left[descriptor].flush()
            if not left[descriptor].waits:
                room.unregister(descriptor)
                del left[descriptor]
