"""The messages on the wire between learner and actors: small typed headers in msgpack, and the bounds they keep to.

It owns what a header may contain. It must not know sockets, nor arrays: those travel as raw frames beside a header.
Three things stay in all protocol versions, so that any two can find that they differ: the first field of Hello and of
Join, and Refused.
"""

import functools
from typing import Annotated, Final, TypeVar

import msgspec

from gpusched.errors import ProtocolError, UsageError
from gpusched.joining.invitation import PROTOCOL, Invited, Join

__all__ = [
    "MAX_DIMENSIONS",
    "MAX_FRAMES",
    "MAX_HEADER",
    "MAX_NAME",
    "MAX_NUMBER",
    "MAX_RETURNED",
    "PROTOCOL",
    "WIDEST_SEGMENT",
    "AnswerHeader",
    "ArraySpec",
    "BatchHeader",
    "Bye",
    "Dropped",
    "FromActor",
    "FromLearner",
    "GetWeights",
    "GotWeights",
    "Hello",
    "Invited",
    "Join",
    "Leaving",
    "News",
    "Parted",
    "Ping",
    "Refused",
    "Segment",
    "Taken",
    "WeightsHeader",
    "Welcome",
    "WhoAreYou",
    "check_arrays",
    "check_header",
    "decode_from_actor",
    "decode_from_learner",
    "encode_header",
    "foreign_protocol",
]

MAX_HEADER: Final = 64 << 10
"""Bytes of one header."""
MAX_FRAMES: Final = 256
"""Arrays in one message."""
MAX_NAME: Final = 128
"""Characters of an array's name."""
MAX_DIMENSIONS: Final = 32
MAX_NUMBER: Final = 1 << 62
MAX_RETURNED: Final = 64
"""Versions that an actor gives back in one message."""

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
RaisingVersion = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]  # the learner goes on above it and must find room
ActorName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=100,
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,63}(@[A-Za-z0-9][A-Za-z0-9._-]{0,31})?\Z",
    ),
]
Token = Annotated[str, msgspec.Meta(max_length=32)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]
ArrayName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
MetaValue = bool | int | float | str


class ArraySpec(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """One array of a message: its frame follows the header, in the same order. `dtype` as NumPy writes it: `<f4`."""

    name: ArrayName
    dtype: Annotated[str, msgspec.Meta(max_length=3)]
    shape: Annotated[tuple[Number, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]


Specs = Annotated[tuple[ArraySpec, ...], msgspec.Meta(max_length=MAX_FRAMES)]


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Memory that the arrays lie in instead of frames: a descriptor of a process on the same host, and what it is."""

    pid: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    descriptor: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
    inode: Number
    size: Number


WIDEST_SEGMENT: Final = Segment(1 << 31, 1 << 31, MAX_NUMBER, MAX_NUMBER)
"""As long as one can be in a header."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """An actor's first message on a connection. `learner`: whose weights it holds, `version`: which; "" and 0 for none.

        `nonce` distinguishes processes of the same name; `number` counts hellos, and Welcome repeats it. `host`: a
    token of where it runs, "" if it shares no memory. `incarnation`: of its node's actors, see runtime.py.
    """

    protocol: int
    name: ActorName
    attempt: Number
    nonce: Token
    number: Number
    learner: Token
    version: RaisingVersion
    host: Token
    incarnation: Number = 0


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """An actor's heartbeat: how often its application has called the channel, and whether it waits in a call now."""

    calls: Number
    inside: bool


class BatchHeader(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Arrays from an actor. `seq` grows by the batch; `version`: the weights they were made with.

    `asks`: it waits for an answer. With a `segment` no frames follow.
    """

    seq: Number
    version: Number
    arrays: Specs
    meta: dict[str, MetaValue]
    asks: bool = False
    segment: Segment | None = None


class GetWeights(msgspec.Struct, frozen=True, array_like=True, tag="get-weights"):
    """An actor asks for the newest weights; it has `have`."""

    have: Number


class GotWeights(msgspec.Struct, frozen=True, array_like=True, tag="got-weights"):
    """An actor has, or could not open, the segment with this version of the weights, and those offered before it.

    `freed`: the versions that it uses no more, so that their segments may be filled again.
    """

    version: Number
    opened: bool
    freed: Annotated[tuple[Number, ...], msgspec.Meta(max_length=MAX_RETURNED)] = ()


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag="leaving"):
    """An actor ends in peace."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The answer to Hello. `seq`: the last batch of this process that came; `held`: those of them that still wait here.

    Batches in flight after `seq` never came to this learner; those up to `seq` and not in `held` are used up. `host` as
    in Hello; `lent`: the batches of this process whose segments are still in use here. `max_message`: bytes that a
    batch of this actor may have, `longest`: that weights and answers may.
    """

    protocol: int
    learner: Token
    number: Number
    credits: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
    version: Number
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]
    max_message: Number
    seq: Number
    held: tuple[Number, ...]
    host: Token = ""
    lent: tuple[Number, ...] = ()
    longest: Number = 0


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """This actor, or host, cannot take part: another protocol, a name that is not its own, a key that was revoked.

    `fenced`: a higher incarnation of its name has been here.
    """

    kind: Text
    reason: Text


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """The learner's application took these batches; `version` is that of the newest weights.

    `freed`: the batches whose segments are not needed any more.
    """

    seqs: tuple[Number, ...]
    version: Number
    freed: tuple[Number, ...] = ()


class News(msgspec.Struct, frozen=True, array_like=True, tag="news"):
    """The learner's heartbeat, and its notice of new weights. `version` 0: none yet."""

    version: Number


class WeightsHeader(msgspec.Struct, frozen=True, array_like=True, tag="weights"):
    """Weights of one version. With a `segment` no frames follow, and GotWeights is the answer."""

    version: Number
    arrays: Specs
    segment: Segment | None = None


class AnswerHeader(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """What the learner answers to batch `seq`, which asked, and which was taken. `freed` as in Taken."""

    seq: Number
    arrays: Specs
    freed: tuple[Number, ...] = ()


class WhoAreYou(msgspec.Struct, frozen=True, array_like=True, tag="who-are-you"):
    """Something came over a connection without a Hello. `seq`: it was that batch; it was not kept: send it again."""

    seq: Number | None = None


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag="dropped"):
    """A message was malformed or beyond the credits, and was dropped. `seq`: that of a batch, if it was known."""

    kind: Text
    reason: Text
    seq: Number | None = None


class Parted(msgspec.Struct, frozen=True, array_like=True, tag="parted"):
    """The answer to Leaving: what the actor sent before has been handled, and its segments are mapped."""


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The job is over."""


FromActor = Hello | Join | Ping | BatchHeader | GetWeights | GotWeights | Leaving
FromLearner = (
    Welcome | Invited | Refused | Taken | News | WeightsHeader | AnswerHeader | WhoAreYou | Dropped | Parted | Bye
)


class _Greeting(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """What a Hello of any protocol begins with."""

    protocol: int


class _Question(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """What a Join of any protocol begins with."""

    protocol: int


Message = TypeVar("Message")

_encoder: Final = msgspec.msgpack.Encoder()
_from_actor: Final[msgspec.msgpack.Decoder[FromActor]] = msgspec.msgpack.Decoder(FromActor)
_greeting: Final = msgspec.msgpack.Decoder(_Greeting | _Question)
_from_learner: Final[msgspec.msgpack.Decoder[FromLearner]] = msgspec.msgpack.Decoder(FromLearner)


def encode_header(message: FromActor | FromLearner) -> bytes:
    """Return the header's bytes. Raises ProtocolError when they would be more than MAX_HEADER."""
    try:
        data = _encoder.encode(message)
    except (OverflowError, TypeError, ValueError, UnicodeEncodeError) as error:
        raise ProtocolError(
            f"a header cannot be written: {error}", "texts are UTF-8, versions and such Python's own int"
        ) from None
    if len(data) > MAX_HEADER:
        raise ProtocolError(
            f"a header of {len(data)} bytes is over the {MAX_HEADER} allowed", "send long data as an array"
        )
    return data


def check_header(message: BatchHeader | Hello | WeightsHeader | AnswerHeader) -> None:
    """Make sure, where the application can see the error, that the other side can read this. Raises UsageError."""
    try:
        msgspec.msgpack.decode(encode_header(message), type=type(message))
    except ProtocolError as error:
        raise UsageError(error.message, error.hint) from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"a header cannot be read: {error}", "versions are numbers from 0") from None


@functools.lru_cache(maxsize=64)
def check_arrays(specs: tuple[ArraySpec, ...]) -> None:
    """Make sure that a header can list these arrays. Raises UsageError. It remembers: one message is as another."""
    check_header(BatchHeader(MAX_NUMBER, MAX_NUMBER, specs, {}, asks=True, segment=WIDEST_SEGMENT))


def decode_from_actor(data: bytes | memoryview) -> FromActor:
    """Decode a message of an actor. Raises ProtocolError, and nothing else, for anything malformed."""
    return _decode(data, _from_actor)


def decode_from_learner(data: bytes | memoryview) -> FromLearner:
    """Decode a message of a learner. Raises ProtocolError, and nothing else, for anything malformed."""
    return _decode(data, _from_learner)


def foreign_protocol(data: bytes | memoryview) -> int | None:
    """Return the protocol of a Hello or a Join that is not ours, None for anything else."""
    try:
        protocol = _greeting.decode(data).protocol
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if protocol == PROTOCOL else protocol


def _decode(data: bytes | memoryview, decoder: msgspec.msgpack.Decoder[Message]) -> Message:
    if len(data) > MAX_HEADER:
        raise ProtocolError(f"a header of {len(data)} bytes is over the {MAX_HEADER} allowed")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"a header cannot be read: {error}"[:900]) from None
