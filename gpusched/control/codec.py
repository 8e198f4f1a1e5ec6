"""The messages between command line and daemon as bytes: the last frame of each is msgpack."""

import msgspec

from gpusched.control.messages import Answer, Request
from gpusched.errors import ProtocolError

__all__ = ["decode_answer", "decode_request", "encode"]

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Request | Answer) -> bytes:
    """Return a message as its last frame."""
    return _encoder.encode(message)


def decode_request(frame: bytes) -> Request:
    """Return the request that a client's last frame holds. Raises ProtocolError."""
    try:
        return _requests.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"a request that is not understood: {error}") from None


def decode_answer(frame: bytes) -> Answer:
    """Return the answer that the daemon's last frame holds. Raises ProtocolError."""
    try:
        return _answers.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"an answer that is not understood: {error}") from None
