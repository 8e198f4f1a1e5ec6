"""The control socket of the daemon: typed requests in, answers out. It must not know what a request means.

Whatever else arrives is dropped and counted; its sender gets an error when the number of its request can be read.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import zmq

import gpusched
from gpusched.control.codec import decode_request, encode
from gpusched.control.messages import MAX_MESSAGE, PROTOCOL, Answer, Refused, Request
from gpusched.control.place import private_directory
from gpusched.errors import GpuschedError, HostFault, NoDaemon, ProtocolError

__all__ = ["Asked", "Server", "refusal"]

_LOG: Final = logging.getLogger(__name__)
_MOST_UNREAD: Final = 64  # messages of up to MAX_MESSAGE
_MOST_UNTAKEN: Final = 256  # answers for one peer: more than one turn of the loop gives
_HANDSHAKE_S: Final = 2.0
_NUMBER_BYTES: Final = 8
_LONGEST_TEXT: Final = 2000


class Asked(NamedTuple):
    """A request, and to whom its answer goes."""

    peer: bytes
    number: bytes
    request: Request


class Server:
    """The socket at `path`, from construction to close(). `malformed` counts the messages that were dropped.

    Its process must hold the daemon's lock: a socket that lies there is replaced. Raises HostFault.
    """

    def __init__(self, path: Path) -> None:
        self.malformed = 0
        self._path = path
        self._logged = set[str]()
        self._context: Any = zmq.Context()
        self._socket: Any = self._unbound()
        try:
            self._bind()
        except BaseException:
            self._socket.close(linger=0)
            self._context.term()
            raise

    @property
    def socket(self) -> Any:
        """The ZeroMQ socket, for a poller; another one after `mend`."""
        return self._socket

    def mend(self) -> None:
        """Listen again if the socket was removed, such as by a cleaner of /tmp.

        Raises HostFault where that cannot be done now; it can be tried again.
        """
        if self._path.is_socket():
            return
        self._socket.close(linger=0)
        self._socket = self._unbound()
        self._bind()
        _LOG.warning("%s was removed; listening there again", self._path)

    def receive(self, most: int, seconds: float) -> Iterator[Asked]:
        """Yield what has arrived, at most `most` messages within at most `seconds`; it does not wait."""
        deadline = time.monotonic() + seconds
        for _ in range(most):
            if time.monotonic() > deadline:
                return
            try:
                frames = self._frames()
            except zmq.Again:
                return
            asked = self._understood(frames)
            if asked is not None:
                yield asked

    def answer(self, asked: Asked, answer: Answer) -> None:
        """Send an answer; one whose peer is gone or does not read goes nowhere."""
        body = encode(answer)
        if len(body) > MAX_MESSAGE << 4:
            body = encode(refusal(HostFault("the answer is too long", "ask for fewer jobs")))
        self._send(asked.peer, asked.number, body)

    def close(self) -> None:
        """Stop listening and remove the socket; answers on their way get a moment to leave."""
        self._socket.close(linger=200)
        self._context.term()
        self._path.unlink(missing_ok=True)

    def _unbound(self) -> Any:
        made: Any = self._context.socket(zmq.ROUTER)
        made.linger = 0
        made.rcvhwm, made.sndhwm = _MOST_UNREAD, _MOST_UNTAKEN
        made.handshake_ivl = round(1000 * _HANDSHAKE_S)  # a peer that connects and sends nothing is dropped
        made.maxmsgsize = MAX_MESSAGE
        return made

    def _bind(self) -> None:
        private_directory(self._path.parent)
        before = os.umask(0o177)
        try:
            self._socket.bind(f"ipc://{self._path}")
        except zmq.ZMQError as error:
            raise HostFault(
                f"{self._path}: {error.strerror}", "set GPUSCHED_RUNTIME_DIR to another directory"
            ) from None
        finally:
            os.umask(before)

    def _frames(self) -> list[bytes]:
        """Return the first five frames of one message; a message that makes sense has four."""
        frames = [self._socket.recv(zmq.NOBLOCK)]
        while self._socket.getsockopt(zmq.RCVMORE):
            frame = self._socket.recv(zmq.NOBLOCK)
            if len(frames) <= 4:  # noqa: PLR2004 (peer, protocol, number, request)
                frames.append(frame)
        return frames

    def _understood(self, frames: list[bytes]) -> Asked | None:
        if len(frames) < 3 or len(frames[2]) != _NUMBER_BYTES:  # noqa: PLR2004
            self._drop("a message without the number of a request")
            return None
        peer, protocol, number = frames[:3]
        if protocol != bytes([PROTOCOL]):
            self._drop("a message of another protocol")
            problem = f"it speaks protocol {PROTOCOL}, and was asked in {protocol[0] if protocol else 'none'}"
            self._send(peer, number, encode(refusal(NoDaemon(problem, "restart the daemon: gpusched daemon stop"))))
            return None
        try:
            return Asked(peer, number, decode_request(frames[3] if len(frames) == 4 else b""))  # noqa: PLR2004
        except ProtocolError as error:
            self._drop("a request that is not understood")
            self._send(peer, number, encode(refusal(error)))
        return None

    def _drop(self, kind: str) -> None:
        self.malformed += 1
        if kind not in self._logged:
            self._logged.add(kind)
            _LOG.warning("dropped %s; further ones are only counted", kind)

    def _send(self, peer: bytes, number: bytes, body: bytes) -> None:
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send_multipart([peer, bytes([PROTOCOL]), number, body], zmq.NOBLOCK)


def refusal(error: GpuschedError) -> Refused:
    """Return the answer that carries an error."""
    return Refused(
        code=error.code,
        message=error.message[:_LONGEST_TEXT],
        hint=error.hint[:_LONGEST_TEXT],
        version=gpusched.__version__,
    )
