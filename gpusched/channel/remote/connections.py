"""The TCP connections to a learner as the kernel knows them: where each comes from, and how much of it is unread.

libzmq keeps the frames of a message until the last has come, however many come, and nothing there bounds that. But the
kernel counts what a connection brought, and the learner what it took: one that is too far ahead is shut down, and with
it goes all that libzmq kept for it. A connection is known by its descriptor, which libzmq names in its events and in
its messages; a copy of the descriptor makes sure that it is this connection that is read.
"""

import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec
import zmq

from gpusched.channel.values import Limits

__all__ = ["Connection", "Connections"]

_MOST_SILENT: Final = 1024  # all actors of two keys may come back at once, after a restart
_MOST_OF_A_KEY: Final = 512
_FIRST_WORD_S: Final = 20.0  # libzmq gives up a handshake after 10
_KERNEL_KEEPS: Final = 16 << 20  # bytes that came and that libzmq has not read: the most of a usual tcp_rmem is 6 MiB
_FROZEN_BELOW: Final = 64 << 10
_HANDSHAKE: Final = 64 << 10  # bytes: a usual one is some hundred
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")  # struct tcp_info of linux/tcp.h, tcpi_bytes_received, Linux 4.1
_LONG_FRAME: Final = 255
_SOURCE: Final = int(zmq.SRCFD)


class Connection(msgspec.Struct, eq=False, kw_only=True):
    """One connection from the network."""

    socket: socket.socket
    address: str
    since: float
    before: int
    """How often a peer had been let in when it came, see count_message()."""
    user: str = ""
    """Its public key, "" until its first message."""
    taken: int = 0
    """Bytes that the learner took of it."""
    unread: int = 0
    """Bytes that wait for the learner."""
    ticket: int = 0
    """Of the weights that are under way on it, 0 for none (messages.WeightsHeader)."""
    trouble: str = ""
    """Why the learner wants no more of it."""
    shut: bool = False


class Connections:
    """All of them. Only the gate's thread calls its methods, but for count_message(), which is for the learner's."""

    def __init__(self, limits: Limits) -> None:
        self._by_descriptor: dict[int, Connection] = {}
        self._most = max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)  # of two descriptors each
        self._most_unread = 2 * min(limits.max_message, limits.max_remote) + _KERNEL_KEEPS
        self._most_unread_of_a_key = limits.most_of_a_key + _KERNEL_KEEPS
        self._beats_a_s = 256 / limits.heartbeat_s  # bytes of libzmq's own heartbeats, which the learner does not take

    def __len__(self) -> int:
        return len(self._by_descriptor)

    @staticmethod
    def freeze(listening: int) -> None:
        """Let connections that are accepted from now on be silent to libzmq until accepted() has seen them.

        They inherit that a little is not worth a wake-up (SO_RCVLOWAT). So a peer that is turned away in the handshake
        is still there when this process asks for the address; and without a gate there is no handshake at all.
        """
        with suppress(OSError), socket.socket(fileno=os.dup(listening)) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _FROZEN_BELOW)

    def accepted(self, descriptor: int, now: float, before: int) -> tuple[Connection, str] | None:
        """Note a new connection, and let it speak; return which one had to go for it, and why, if there are too many.

        `before`: how often a peer has been let in so far.
        """
        self.ended(descriptor)
        try:
            copied = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # it has ended already
            return None
        try:
            address = copied.getpeername()[0]
        except (OSError, IndexError):
            copied.close()
            return None
        address = address.removeprefix("::ffff:")
        connection = Connection(socket=copied, address=address, since=now, before=before)
        self._by_descriptor[descriptor] = connection
        with suppress(OSError):
            copied.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        gone = self._too_many(connection)
        if gone is not None:
            self.shut(gone[0])
        return gone

    def ended(self, descriptor: int) -> Connection | None:
        """Forget a connection that libzmq has given up; return what was known of it."""
        connection = self._by_descriptor.pop(descriptor, None)
        if connection is not None:
            connection.socket.close()
        return connection

    def count_message(self, parts: list[zmq.Frame], unkept: int, user: str, entry: int) -> Connection | None:
        """Count this message as taken, and return the connection of `user` that it came over, None if it has ended.

        `entry`: which of all times that a peer was let in was that of this connection. A message of an earlier one
        than can be is late: its own has ended, and the descriptor is another's now.
        """
        connection = self._by_descriptor.get(parts[-1].get(_SOURCE))
        if connection is None or entry <= connection.before:
            return None
        connection.user = user
        connection.taken += unkept + sum(_on_the_wire(len(part)) for part in parts[1:])
        return connection

    def talks_too_much(self, address: str) -> bool:
        """Return whether one from there has sent more than a handshake takes before its first message, and shut it.

        A peer gives itself a name in the handshake: libzmq takes a name as long as a message may be, and
        copies it for each message.
        """
        found = [each for each in self._by_descriptor.values() if each.address == address and not each.user]
        found = [each for each in found if _received(each.socket) > _HANDSHAKE]
        for each in found:
            self.shut(each)
        return bool(found)

    def check(self, now: float) -> list[tuple[Connection, str]]:
        """Shut those that go too far, and return them with the reason."""
        number, unread = Counter[str](), Counter[str]()
        found = []
        for connection in sorted(self._by_descriptor.values(), key=lambda each: each.since):
            connection.unread = self._unread(connection, now)
            number[connection.user] += 1
            unread[connection.user] += connection.unread
            found.append((connection, self._trouble(connection, number[connection.user], now)))
        for user in [user for user, size in unread.items() if size > self._most_of(user)]:
            greediest = max((each for each, _ in found if each.user == user), key=lambda each: each.unread)
            who = "its key has" if user else "those that have shown no key yet have"
            found.append((greediest, f"{who} sent more than can be read of it, over several connections"))
        return [(connection, why) for connection, why in found if why and self.shut(connection)]

    def shut(self, connection: Connection) -> bool:
        """End this connection now; libzmq will notice. Return False if that was done before."""
        if connection.shut:
            return False
        connection.shut = True
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        return True

    def shut_all(self) -> None:
        """End all connections."""
        for connection in self._by_descriptor.values():
            self.shut(connection)

    def shut_others(self, users: Collection[str]) -> None:
        """End the connections of all but these users, and but those of which it is not known yet whose they are."""
        for connection in self._by_descriptor.values():
            if connection.user and connection.user not in users:
                self.shut(connection)

    def close(self) -> None:
        """Forget all of them."""
        for descriptor in list(self._by_descriptor):
            self.ended(descriptor)

    def _too_many(self, newest: Connection) -> tuple[Connection, str] | None:
        """Of those that have sent nothing one gives way: an honest one sends its name soon.

        It is the oldest from the address that has most of them, so that a peer with many is in the way of few others.
        """
        silent = [each for each in self._by_descriptor.values() if not each.user and not each.shut]
        if len(silent) > _MOST_SILENT:
            why = f"more than {_MOST_SILENT} connections send nothing"
        elif len(self._by_descriptor) > self._most:
            why = f"there are more than {self._most} connections: see `ulimit -n`"
        else:
            return None
        if not silent:
            return newest, why
        [(most, _)] = Counter(each.address for each in silent).most_common(1)
        return next(each for each in silent if each.address == most), why

    def _most_of(self, user: str) -> int:
        return self._most_unread_of_a_key if user else 2 * self._most_unread

    def _trouble(self, connection: Connection, number: int, now: float) -> str:
        if connection.trouble:
            return connection.trouble
        if not connection.user and now - connection.since > _FIRST_WORD_S:
            return f"it sent nothing for {_FIRST_WORD_S:.0f} s"
        if connection.user and number > _MOST_OF_A_KEY:
            return f"its key has more than {_MOST_OF_A_KEY} connections"
        if connection.unread > self._most_unread:
            return f"it sent over {self._most_unread >> 20} MiB more than can be read of it"
        return ""

    def _unread(self, connection: Connection, now: float) -> int:
        """Return the bytes that are with libzmq, or with the kernel; a little less, as heartbeats are not counted."""
        return max(0, _received(connection.socket) - connection.taken - int(self._beats_a_s * (now - connection.since)))


def _received(connected: socket.socket) -> int:
    """Return the bytes that came over a connection, 0 where the kernel does not show it."""
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return 0
    return int(_BYTES_RECEIVED.unpack(info)[0]) if len(info) == _BYTES_RECEIVED.size else 0


def _on_the_wire(size: int) -> int:
    """Return what a frame of `size` bytes takes with CURVE (rfc.zeromq.org/spec/25) and ZMTP's framing (spec/23)."""
    boxed = size + 33
    return boxed + (9 if boxed > _LONG_FRAME else 2)
