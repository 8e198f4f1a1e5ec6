"""A request of 1 KiB and a reply as long, between two processes: `python -m bench.peers.reply ROW [--quick]`."""

import argparse
import json
import multiprocessing
import select
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import zmq

from bench.peers.children import Pipe, forked
from bench.peers.steps import percentiles
from gpusched.channel import Actor, Learner, Limits
from gpusched.channel.framing import pack_arrays
from gpusched.channel.messages import AnswerHeader, BatchHeader, decode_from_actor, decode_from_learner, encode_header
from gpusched.channel.values import Array

__all__ = ["ROWS", "measured"]

MESSAGE: Final = b"x" * 1024
_TIMES: Final = 3000
_WARM: Final = 300


class Link:
    """Made before the fork; then each process opens its own end."""

    def open_server(self) -> str:
        """Open the end that answers; return where the other finds it."""
        return ""

    def open_asker(self, address: str) -> None:
        """Open the end that asks."""

    def ask(self) -> None:
        """Send a request, and return when its reply is there."""
        raise NotImplementedError

    def serve(self) -> None:
        """Take one request, and answer it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the end of this process."""


class PipeLink(Link):
    """multiprocessing.Pipe, with its bytes."""

    def __init__(self) -> None:
        self._server, self._asker = multiprocessing.Pipe()

    def ask(self) -> None:
        """Write, then read."""
        self._asker.send_bytes(MESSAGE)
        self._asker.recv_bytes()

    def serve(self) -> None:
        """Read, then write."""
        self._server.send_bytes(self._server.recv_bytes())


class SocketLink(Link):
    """The limit: a pair of unix sockets."""

    def __init__(self) -> None:
        self._server, self._asker = socket.socketpair()

    def ask(self) -> None:
        """Write, then read."""
        self._asker.sendall(MESSAGE)
        self._asker.recv(len(MESSAGE), socket.MSG_WAITALL)

    def serve(self) -> None:
        """Read, then write."""
        self._server.sendall(self._server.recv(len(MESSAGE), socket.MSG_WAITALL))


class LeastLink(Link):
    """A limit: headers, arrays and calls of the kernel as in gpusched.channel, no names, credits, locks or threads."""

    def __init__(self) -> None:
        self._server, self._asker = socket.socketpair()
        self._message = np.frombuffer(MESSAGE, np.uint8)
        self._specs, _ = pack_arrays({"message": self._message}, 1 << 20)
        self._prefix, self._buffer = struct.Struct("<II2Q"), memoryview(bytearray(32 << 10))
        self._polls = {one: select.poll() for one in (self._server, self._asker)}
        for one, poll in self._polls.items():
            poll.register(one, select.POLLIN)

    def ask(self) -> None:
        """Write a header and an array, then read the same."""
        self._write(self._asker, encode_header(BatchHeader(1, 0, self._specs, {}, asks=True)), self._message)
        decode_from_learner(self._read(self._asker)[0])

    def serve(self) -> None:
        """Read, then write."""
        header, array = self._read(self._server)
        batch = decode_from_actor(header)
        if not isinstance(batch, BatchHeader):
            raise TypeError(f"{batch} came")
        self._write(self._server, encode_header(AnswerHeader(batch.seq, self._specs)), array)

    def _write(self, to: socket.socket, header: bytes, array: Array) -> None:
        frame = array.tobytes()
        to.sendmsg([self._prefix.pack(0, 2, len(header), len(frame)), header, frame], (), socket.MSG_NOSIGNAL)

    def _read(self, of: socket.socket) -> tuple[memoryview, Array]:
        self._polls[of].poll()
        of.recv_into(self._buffer)
        _, _, header, frame = self._prefix.unpack_from(self._buffer)
        start = self._prefix.size + header
        array = np.ndarray((frame,), np.uint8, memoryview(bytearray(self._buffer[start : start + frame])))
        return self._buffer[self._prefix.size : start], array


class ZeroMQLink(Link):
    """pyzmq: DEALER asks, ROUTER answers."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def open_server(self) -> str:
        """Bind."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(self._endpoint)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def open_asker(self, address: str) -> None:
        """Connect."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(address)

    def ask(self) -> None:
        """Send, then receive."""
        self._socket.send(MESSAGE)
        self._socket.recv()

    def serve(self) -> None:
        """Receive, then send back."""
        self._socket.send_multipart(self._socket.recv_multipart())

    def close(self) -> None:
        """Close."""
        self._context.destroy(linger=1000)


class Ours(Link):
    """gpusched.channel: Actor.ask and Learner.answer."""

    def __init__(self, endpoint: str, *, share_memory: bool = True) -> None:
        self._endpoint, self._limits = endpoint, Limits(share_memory=share_memory)
        self._message = {"message": np.frombuffer(MESSAGE, np.uint8)}
        self._closing: Callable[[], None] = lambda: None

    def open_server(self) -> str:
        """Make the Learner."""
        self._learner = Learner(self._endpoint, limits=self._limits)
        self._closing = self._learner.close
        return self._learner.endpoint

    def open_asker(self, address: str) -> None:
        """Make the Actor."""
        self._actor = Actor(address, limits=self._limits)
        self._closing = self._actor.close

    def ask(self) -> None:
        """Ask, and wait for the answer."""
        answer = self._actor.ask(self._message)
        if answer is None or answer.wait() is None:
            raise RuntimeError("the learner did not answer")

    def serve(self) -> None:
        """Take the next that asks, and answer it."""
        batch = self._learner.get()
        if batch is None:
            raise RuntimeError("the learner was stopped")
        self._learner.answer(batch, batch.arrays)

    def close(self) -> None:
        """Close."""
        self._closing()


ROWS: Final[dict[str, Callable[[str], Link]]] = {
    "pipe": lambda _: PipeLink(),
    "unix-socket": lambda _: SocketLink(),
    "least": lambda _: LeastLink(),
    "zmq-ipc": lambda home: ZeroMQLink(f"ipc://{home}/a"),
    "zmq-tcp": lambda _: ZeroMQLink("tcp://127.0.0.1:*"),
    "ours-ipc": lambda home: Ours(f"ipc://{home}/a"),
    "ours-tcp": lambda _: Ours("tcp://127.0.0.1:0", share_memory=False),
}


def measured(row: str, times: int) -> dict[str, float]:
    """Return the microseconds from before a request is made until its reply is there, and requests a second."""
    with tempfile.TemporaryDirectory(prefix="gs-") as home:
        link = ROWS[row](home)
        asker = forked(_ask, link, times)
        asker.send(link.open_server())
        for _ in range(_WARM + times):
            link.serve()
        taken = asker.recv()
        link.close()
    return {**percentiles(taken), "rate": 1e6 * len(taken) / sum(taken)}


def _ask(server: Pipe, link: Link, times: int) -> None:
    """Be the process that asks."""
    link.open_asker(server.recv())
    taken = []
    for _ in range(_WARM + times):
        began = time.perf_counter()
        link.ask()
        taken.append(1e6 * (time.perf_counter() - began))
    server.send(taken[_WARM:])
    link.close()


def main() -> None:
    """Measure one row, and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--quick", action="store_true", help="a third of the requests")
    typed = parser.parse_args()
    print(json.dumps(measured(typed.row, _TIMES // 3 if typed.quick else _TIMES)))


if __name__ == "__main__":
    main()
