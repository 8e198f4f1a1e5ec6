"""The client's end of a ZeroMQ connection, spoken over its socket: importing ZeroMQ takes longer than the daemon does.

It is a DEALER that talks to one ROUTER by ZMTP 3.0 (rfc.zeromq.org/spec/23) with the mechanism NULL: both send a
greeting and READY, then messages of frames. A frame is a byte of flags, its size in one byte or eight, and its body.
"""

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["Dealer", "HangUpError"]

_GREETING: Final = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0" + b"NULL".ljust(20, b"\0") + bytes(32)
_MAJOR: Final = 10  # where in a greeting the version stands that both must speak
_READY: Final = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
_MORE, _LONG, _COMMAND = 1, 2, 4
_LONGEST_SHORT: Final = 255
_READ_BYTES: Final = 1 << 16
_AGAIN_S: Final = 0.01


class HangUpError(Exception):
    """The other side has closed the connection, or said what nobody here understands."""


class Dealer:
    """A connection to whoever listens at `path`, made at once; no answer may have frames of more than `longest` bytes.

    All calls wait until `deadline` (monotonic) at the latest and raise TimeoutError then. They raise HangUpError when
    the other side is gone: then only close() is left to call.
    """

    def __init__(self, path: Path, deadline: float, longest: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._longest = longest
        self._unread = bytearray()
        try:
            self._connect(path, deadline)
            self._shake_hands(deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; what the other side has not read yet may be lost. Safe to call twice."""
        self._socket.close()

    def is_open(self) -> bool:
        """Return whether the other side has not hung up, as far as it is known here."""
        self._socket.settimeout(0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, frames: Sequence[bytes], deadline: float) -> None:
        """Send one message."""
        flags = [_MORE] * (len(frames) - 1) + [0]
        self._write(b"".join(map(_framed, frames, flags)), deadline)

    def receive(self, deadline: float) -> list[bytes]:
        """Return the next message; of one that has begun to come nothing is lost by a TimeoutError."""
        while (frames := self._message()) is None:
            self._read(deadline)
        return frames

    def _connect(self, path: Path, deadline: float) -> None:
        while True:
            self._socket.settimeout(_left(deadline))
            try:
                self._socket.connect(os.fspath(path))
            except BlockingIOError:  # so many wait to be let in that the kernel lets nobody else wait
                time.sleep(_AGAIN_S)
            except TimeoutError:
                raise
            except OSError as error:
                raise HangUpError(str(error)) from None
            else:
                return

    def _shake_hands(self, deadline: float) -> None:
        self._write(_GREETING, deadline)
        while len(self._unread) < len(_GREETING):
            self._read(deadline)
        if self._unread[_MAJOR] != _GREETING[_MAJOR]:
            raise HangUpError(f"it speaks ZMTP {self._unread[_MAJOR]}")
        del self._unread[: len(_GREETING)]
        self._write(_framed(_READY, _COMMAND), deadline)  # its own READY is a command, and passed over as all are

    def _write(self, content: bytes, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        try:
            self._socket.sendall(content)
        except TimeoutError:
            raise
        except OSError as error:
            raise HangUpError(str(error)) from None

    def _read(self, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        try:
            piece = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise HangUpError(str(error)) from None
        if not piece:
            raise HangUpError("it closed the connection")
        self._unread += piece

    def _message(self) -> list[bytes] | None:
        """Take the first whole message out of what was read, None if there is none yet; commands are passed over."""
        frames: list[bytes] = []
        at = 0
        while len(self._unread) >= at + 2:
            flags = self._unread[at]
            width = 8 if flags & _LONG else 1
            size = int.from_bytes(self._unread[at + 1 : at + 1 + width], "big")
            start = at + 1 + width
            if size > self._longest:
                raise HangUpError(f"it sends {size} bytes")
            if len(self._unread) < start + size:
                return None
            at = start + size
            if not flags & _COMMAND:
                frames.append(bytes(self._unread[start:at]))
            if not flags & (_COMMAND | _MORE):
                del self._unread[:at]
                return frames
        return None


def _framed(body: bytes, flags: int) -> bytes:
    if len(body) > _LONGEST_SHORT:
        return bytes([flags | _LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
