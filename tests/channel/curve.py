"""A client of CurveZMQ (rfc.zeromq.org/spec/26) that is not libzmq: it says what libzmq would let nobody say."""

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ctypes.util import find_library
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from gpusched.joining.keys import JoinKey
from tests.patience import PATIENCE_S

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)


def _libraries() -> Iterator[str]:
    """Yield where libsodium may be: beside pyzmq, which brings its own, or where the system has it."""
    yield from map(str, (Path(zmq.__file__).parents[1] / "pyzmq.libs").glob("libsodium*"))
    if (found := find_library("sodium")) is not None:
        yield found


def sodium() -> ctypes.CDLL:
    """Return libsodium; without it there is no test."""
    for library in _libraries():
        with suppress(OSError):
            return ctypes.CDLL(library)
    pytest.skip("no libsodium")


class Client:
    """A connection that has said all of its handshake, with a name (ZMTP: Identity) of any length."""

    def __init__(self, endpoint: str, key: JoinKey, name: bytes) -> None:
        self._sodium = sodium()
        self._nonce = 0
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._server = z85.decode(key.server)
        self._pair = z85.decode(key.public), z85.decode(key.secret)
        self._short = self._keypair()
        self._theirs = b""
        self._socket.sendall(GREETING)
        self._read(len(GREETING))
        self._greet(name)

    def say(self, data: bytes) -> None:
        """Send a message of one frame, which ends what the handshake began."""
        self._read_command()  # READY
        self._message(b"\0" + data)

    def say_without_end(self, frame: bytes, times: int) -> None:
        """Send a message of so many equal frames, and one more to come; until the other side ends the connection.

        libzmq cannot be asked to: where it is cut off amid a message, it may end its whole process.
        """
        self._read_command()
        with suppress(OSError):
            for _ in range(times):
                self._message(b"\x01" + frame)

    def _message(self, plain: bytes) -> None:
        nonce = self._next_nonce()
        box = self._box(plain, b"CurveZMQMESSAGEC" + nonce, self._theirs, self._short[1])
        self._frame(0, b"\x07MESSAGE" + nonce + box)

    def ended(self) -> bool:
        """Wait until the other side has ended it; False if it does not."""
        try:
            while self._socket.recv(1000):
                continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()

    def _greet(self, name: bytes) -> None:
        short_public, short_secret = self._short
        nonce = self._next_nonce()
        proof = self._box(bytes(64), b"CurveZMQHELLO---" + nonce, self._server, short_secret)
        self._frame(4, b"\x05HELLO\x01\0" + bytes(72) + short_public + nonce + proof)
        welcome = self._read_command()
        told = self._open(welcome[24:], b"WELCOME-" + welcome[8:24], self._server, short_secret)
        self._theirs, cookie = told[:32], told[32:]
        vouch = self._box(short_public + self._server, b"VOUCH---" + bytes(16), self._theirs, self._pair[1])
        words = b"".join(
            bytes([len(what)]) + what + struct.pack(">I", len(value)) + value
            for what, value in ((b"Socket-Type", b"DEALER"), (b"Identity", name))
        )
        nonce = self._next_nonce()
        said = self._pair[0] + bytes(16) + vouch + words
        box = self._box(said, b"CurveZMQINITIATE" + nonce, self._theirs, short_secret)
        with suppress(ConnectionError):  # it may be cut before the end
            self._frame(4, b"\x08INITIATE" + cookie + nonce + box)

    def _next_nonce(self) -> bytes:
        self._nonce += 1
        return struct.pack(">Q", self._nonce)

    def _frame(self, flags: int, body: bytes) -> None:
        long = len(body) > 255
        size = struct.pack(">Q", len(body)) if long else bytes([len(body)])
        self._socket.sendall(bytes([flags | (2 if long else 0)]) + size + body)

    def _read_command(self) -> bytes:
        _, size = self._read(2)
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            some = self._socket.recv(size - len(data))
            if not some:
                raise ConnectionError("ended")
            data += some
        return data

    def _keypair(self) -> tuple[bytes, bytes]:
        public, secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
        assert self._sodium.crypto_box_keypair(public, secret) == 0
        return public.raw, secret.raw

    def _box(self, plain: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
        boxed = ctypes.create_string_buffer(len(plain) + 16)
        size = ctypes.c_ulonglong(len(plain))
        assert self._sodium.crypto_box_easy(boxed, plain, size, nonce, public, secret) == 0
        return boxed.raw

    def _open(self, boxed: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
        plain = ctypes.create_string_buffer(len(boxed) - 16)
        size = ctypes.c_ulonglong(len(boxed))
        assert self._sodium.crypto_box_open_easy(plain, boxed, size, nonce, public, secret) == 0
        return plain.raw
