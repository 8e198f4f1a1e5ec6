"""What the channel gives to applications: batches, weights, the state of actors, and the limits it keeps to."""

from typing import Any, Final

import msgspec
import numpy.typing as npt

from gpusched.errors import UsageError

__all__ = ["ActorStatus", "Array", "Batch", "Limits", "Meta", "Weights"]

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
    """One actor as the learner sees it.

    `connected`: its last message is no older than `Limits.silence_s`. `alive`: connected, and its application waits in
    a call of the channel or made one within `Limits.stuck_s`; connected but not alive is an actor that is stuck.
    `batches` and `bytes` count what was received under this name; `waiting`: batches not taken yet. `seen_s`: seconds
    since anything came from it. `version`: the newest weights that it was given.
    """

    name: str
    connected: bool
    alive: bool
    batches: int
    bytes: int
    waiting: int
    seen_s: float
    version: int
    attempt: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner allows and expects; actors learn it when they connect. Raises UsageError for what cannot be kept.

    `in_flight`: batches an actor may have sent that the learner's application has not taken. `max_message`: bytes of
    one batch or of the weights. `heartbeat_s`: between signs of life; `silence_s`: without any, a peer counts as gone;
    `stuck_s`: without a call by its application, an actor counts as stuck. A learner whose `max_message` is larger than
    an actor's own is refused by it: above the default, give both the same. `share_memory`: on one host, batches and
    weights of 64 KiB and more go through shared memory, if both sides allow it. For actors on other hosts:
    `max_remote`: bytes of one batch, and half of what a connection may have sent that is not read yet;
    `most_of_a_key`: bytes of all batches that wait for the application from peers with one key, and of all that
    their connections sent and that is not read yet.
    """

    in_flight: int = 2
    max_message: int = 1 << 30
    heartbeat_s: float = 1.0
    silence_s: float = 10.0
    stuck_s: float = 60.0
    share_memory: bool = True
    max_remote: int = 128 << 20
    most_of_a_key: int = 2 << 30

    def __post_init__(self) -> None:
        for fits, rule in (
            (1 <= self.in_flight <= 1 << 16, "in_flight is 1 to 65536 batches"),
            (1 << 16 <= self.max_message <= 1 << 62, "max_message is at least 65536 bytes"),
            (1 <= self.heartbeat_s * 1000 <= _HOUR_MS, "heartbeat_s is 0.001 to 3600 seconds"),
            (self.heartbeat_s < self.silence_s <= _DAY_S, "silence_s is over heartbeat_s, and a day at the most"),
            (self.stuck_s > 0, "stuck_s is over 0"),
            (self.max_remote >= 1 << 16, "max_remote is at least 65536 bytes"),
            (self.most_of_a_key >= self.max_remote, "most_of_a_key is at least max_remote"),
        ):
            if not fits:
                raise UsageError(f"{self} cannot be kept", rule)

    def longest(self, key: str) -> int:
        """Return the bytes that a batch of one with this key may have; "": of an actor on this host."""
        return min(self.max_message, self.max_remote) if key else self.max_message
