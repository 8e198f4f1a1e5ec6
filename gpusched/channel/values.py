"""Values of the channel: batches, weights, the state of actors, what an actor is, and the limits that all keep to."""

from typing import Any, Final, NamedTuple

import msgspec
import numpy.typing as npt

from gpusched.errors import UsageError

__all__ = ["ActorStatus", "Array", "Batch", "Limits", "Meta", "Speaker", "Weights"]

_HOUR_MS: Final = 3_600_000
_DAY_S: Final = 86_400

Array = npt.NDArray[Any]
Meta = dict[str, bool | int | float | str]


class Batch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an actor sent. `version`: the weights it was made with, 0 for none. `seq` grows with each of that process.

    The arrays are the received memory itself, not a copy: this batch's alone, writable, freed with the last of them.
    A batch in shared memory is kept by the process that got it: a process forked off later has to copy what it keeps.
    `asks`: the actor waits for Learner.answer(). `process` distinguishes processes of the actor's name.
    """

    arrays: dict[str, Array]
    actor: str
    version: int
    meta: Meta
    seq: int
    asks: bool = False
    process: str = ""


class Weights(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Named arrays of one version, whole, never mixed from two. They are read-only: copy one to change it."""

    version: int
    arrays: dict[str, Array]


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One actor as the learner sees it. `batches` and `bytes` count what was received under its name."""

    name: str
    connected: bool
    """Its last message is no older than `Limits.silence_s`."""
    alive: bool
    """Connected, and its application waits in a call or made one within `Limits.stuck_s`; else it is stuck."""
    batches: int
    bytes: int
    waiting: int
    """Batches that the application has not taken yet."""
    seen_s: float
    """Seconds since its last message."""
    version: int
    """The newest weights that it was given."""
    attempt: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner allows and expects; actors get it when they connect. Raises UsageError for invalid values."""

    in_flight: int = 2
    """Batches an actor may have sent that the learner's application has not taken."""
    max_message: int = 1 << 30
    """Bytes of one batch or of the weights. An actor refuses a learner with more than its own."""
    heartbeat_s: float = 1.0
    """Seconds between signs of life."""
    silence_s: float = 10.0
    """Seconds without a sign of life after which a peer counts as gone."""
    stuck_s: float = 60.0
    """Seconds without a call by its application after which an actor counts as stuck."""
    share_memory: bool = True
    """On one host, batches and weights of 64 KiB and more go through shared memory, if both sides allow it."""
    max_remote: int = 128 << 20
    """Bytes of one batch from another host."""

    def __post_init__(self) -> None:
        for fits, rule in (
            (1 <= self.in_flight <= 1 << 16, "in_flight is 1 to 65536 batches"),
            (1 << 16 <= self.max_message <= 1 << 62, "max_message is at least 65536 bytes"),
            (1 <= self.heartbeat_s * 1000 <= _HOUR_MS, "heartbeat_s is 0.001 to 3600 seconds"),
            (self.heartbeat_s < self.silence_s <= _DAY_S, "silence_s is over heartbeat_s, and a day at the most"),
            (self.stuck_s > 0, "stuck_s is over 0"),
            (self.max_remote >= 1 << 16, "max_remote is at least 65536 bytes"),
        ):
            if not fits:
                raise UsageError(f"{self} cannot be kept", rule)

    def longest(self, key: str) -> int:
        """Return the bytes that a batch of one with this key may have; "": of an actor on this host."""
        return min(self.max_message, self.max_remote) if key else self.max_message


class Speaker(NamedTuple):
    """The sender of a Hello: the actor's name, which of its processes, and of which incarnation: see runtime.py.

    `elsewhere`: its learner is not on this host. It gives up when its key, of this name, is not let in, or when nothing
    came for `patience_s`, of the first message for `first_s`; None: it does not.
    """

    name: str
    attempt: int = 0
    incarnation: int = 0
    elsewhere: bool = False
    key: str | None = None
    patience_s: float | None = None
    first_s: float | None = None
