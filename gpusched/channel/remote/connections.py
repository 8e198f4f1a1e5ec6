"""The TCP connections to a learner as the kernel knows them: where each comes from, and whose key it has shown.

What a peer without a key can make the learner hold is bounded here: the number of its connections, how long they stay
silent, and the bytes of their handshakes, of which libzmq bounds one frame only. For peers with a key there is a cap on
connections (docs/decisions/0026). A connection is known by its descriptor, which libzmq names in its events and in its
messages; a copy of the descriptor makes sure that it is this connection that is read.
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
_HANDSHAKES: Final = 16 << 20  # bytes of some thousand at once: a usual one is some hundred
_FROZEN_BELOW: Final = 64 << 10
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")  # struct tcp_info of linux/tcp.h, tcpi_bytes_received, Linux 4.1
_SOURCE: Final = int(zmq.SRCFD)


class Connection(msgspec.Struct, eq=False, kw_only=True):
    """One connection from the network."""

    socket: socket.socket
    address: str
    since: float
    user: str = ""
    """Its public key, "" until its first message."""
    shut: bool = False


class Connections:
    """All of them. The authenticator's thread calls its methods, but for note_user(), which is for the learner's."""

    def __init__(self, limits: Limits) -> None:
        self._by_descriptor: dict[int, Connection] = {}
        self._most = max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)  # of two descriptors each
        self._most_of_strangers = _HANDSHAKES + 4 * limits.longest("any")  # bytes: a batch may follow a first message

    def __len__(self) -> int:
        return len(self._by_descriptor)

    @staticmethod
    def freeze(listening: int) -> None:
        """Let connections that are accepted from now on be silent to libzmq until accepted() has seen them.

        They inherit that a little is not worth a wake-up (SO_RCVLOWAT). So a peer that is turned away in the handshake
        is still there when this process asks for the address; without an authenticator there is no handshake at all.
        """
        with suppress(OSError), socket.socket(fileno=os.dup(listening)) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _FROZEN_BELOW)

    def accepted(self, descriptor: int, now: float) -> tuple[Connection, str] | None:
        """Note a new connection, and let it speak; return which one had to go for it and why, if there are too many."""
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
        connection = Connection(socket=copied, address=address, since=now)
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

    def note_user(self, frame: zmq.Frame, user: str) -> None:
        """Note that this frame came with that public key.

        One that is read late may be of a former connection with the same descriptor. A stranger that has got this
        descriptor since then is taken for that key's, and may stay silent: it still counts among the 512 of the key.
        """
        connection = self._by_descriptor.get(frame.get(_SOURCE))
        if connection is not None:
            connection.user = user

    def check(self, now: float) -> list[tuple[Connection, str]]:
        """Shut those that go too far, and return them with the reason."""
        number = Counter[str]()
        found = []
        for connection in self._by_descriptor.values():  # the oldest first
            number[connection.user] += 1
            if not connection.user and now - connection.since > _FIRST_WORD_S:
                found.append((connection, f"it sent nothing for {_FIRST_WORD_S:.0f} s"))
            elif connection.user and number[connection.user] > _MOST_OF_A_KEY:
                found.append((connection, f"its key has more than {_MOST_OF_A_KEY} connections"))
        received = {each: _received(each.socket) for each in self._silent()}
        if sum(received.values()) > self._most_of_strangers:
            greediest = max(received, key=received.__getitem__)
            found.append((greediest, "those that have shown no key yet have sent more than handshakes take"))
        return [(connection, why) for connection, why in found if self.shut(connection)]

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
        silent = self._silent()
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

    def _silent(self) -> list[Connection]:
        """Return those of which no message has come, the oldest first."""
        return [each for each in self._by_descriptor.values() if not each.user and not each.shut]


def _received(connected: socket.socket) -> int:
    """Return the bytes that came over a connection, 0 where the kernel does not show it."""
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return 0
    return int(_BYTES_RECEIVED.unpack(info)[0]) if len(info) == _BYTES_RECEIVED.size else 0
