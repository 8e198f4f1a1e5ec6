"""The actor's side of the protocol: batches, weights, answers, and how to begin again.

It must not know threads: actor_thread.py sees to it that one at a time is in here.
"""

import math
import secrets
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

import msgspec

from gpusched import runtime
from gpusched.channel.fetching import Fetching
from gpusched.channel.framing import split, unpack_arrays
from gpusched.channel.messages import (
    PROTOCOL,
    AnswerHeader,
    ArraySpec,
    BatchHeader,
    Bye,
    Dropped,
    FromActor,
    FromLearner,
    Hello,
    Leaving,
    News,
    Parted,
    Ping,
    Refused,
    Taken,
    WeightsHeader,
    Welcome,
    WhoAreYou,
    decode_from_learner,
    encode_header,
)
from gpusched.channel.shm.lending import SegmentPool
from gpusched.channel.shm.segment import ReusableSegment, host_token
from gpusched.channel.transport import ClientSocket, Part, Received, Wake, log
from gpusched.channel.values import Array, Limits, Meta, Speaker
from gpusched.errors import ChannelError, GpuschedError, LearnerGone, ProtocolError

__all__ = ["HELLO_AGAIN_S", "ActorProtocol", "Outgoing", "Question"]

HELLO_AGAIN_S: Final = 2.0
_CHECK_S: Final = 1.0
_RECONNECT_S: Final = 30.0  # a handshake has 10 s; libzmq, which connects again by itself, was seen to give up


class Outgoing(msgspec.Struct, eq=False, kw_only=True):
    """A batch that waits for the socket, or is in flight. `seq` is 0 until then. Its arrays lie in one or the other."""

    version: int
    arrays: tuple[ArraySpec, ...]
    meta: Meta
    asks: bool
    segment: ReusableSegment | None
    frames: list[Part]
    seq: int = 0

    def header(self) -> BatchHeader:
        """Return its header."""
        segment = None if self.segment is None else self.segment.segment
        return BatchHeader(self.seq, self.version, self.arrays, self.meta, self.asks, segment)


class Question(msgspec.Struct, eq=False, weakref=True):
    """What an application asked. `over`: the answer came, or never will: then `arrays` stays None."""

    arrays: dict[str, Array] | None = None
    over: bool = False


class ActorProtocol:
    """An actor's side of the talk with its learner. Called with the lock of `socket` held; `wake` wakes its thread."""

    def __init__(self, socket: ClientSocket, wake: Wake, speaker: Speaker, limits: Limits) -> None:
        self.gone: GpuschedError | None = None
        self.over = self.refused = False
        self.outbox: deque[Outgoing] = deque()
        self.in_flight: dict[int, Outgoing] = {}
        self.questions: weakref.WeakValueDictionary[int, Question] = weakref.WeakValueDictionary()
        self.lent = SegmentPool(limits.in_flight)
        self.credits = limits.in_flight
        self.max_message = limits.max_message
        self.calls = 0
        self.inside = False
        self.received_at = float("-inf")
        self.dropped: Counter[str] = Counter()
        self.closing_at: float | None = None
        self._seq = 0
        self.wake = wake
        self.frames_of = socket.frames_of
        self._socket = socket
        self._host = host_token() if limits.share_memory else ""
        self._shares = False
        self._name, self._speaker, self._nonce = speaker.name, speaker, secrets.token_hex(8)
        self._heartbeat_s = limits.heartbeat_s
        self._longest = limits.max_message  # libzmq ends a connection that brings more, again and again
        self.fetching = Fetching(limits.max_message)
        self._learner = ""
        self._number = 0
        self._welcomed = False
        self._hello_at = float("-inf")
        self._ping_at = 0.0
        self._blocked = False
        self._leaving = self._parted = self._ready = False
        self._began = self._connected_at = time.monotonic()
        self._silent = False
        self._check_at = self._began + _CHECK_S if speaker.elsewhere else math.inf

    def _turn(self) -> None:
        """Send what is due and handle what came, until nothing comes: see Socket.reports_once."""
        while self.gone is None:
            self._send_due(time.monotonic())
            received = self._socket.receive()
            while received is not None and not self._handle(received):
                received = self._socket.receive()
            if received is not None:
                continue
            if self._socket.broken():
                self._ping_at = self._hello_at = -math.inf
            elif not (self._blocked and self._socket.writable()):  # the connection may have come about just now
                break

    def notify(self) -> None:
        """Let all threads that wait check again."""
        raise NotImplementedError

    # Messages of the learner

    def _handle(self, received: Received) -> bool:
        """Act upon a message; return whether something may be due to be sent now."""
        try:
            message = decode_from_learner(received.header)
            if isinstance(message, WeightsHeader):
                self.fetching.receive(message, received.frames, self._learner)
            elif isinstance(message, AnswerHeader):
                self._taken((message.seq,), message.freed)
                self._conclude(message.seq, unpack_arrays(message.arrays, received.frames, self._longest))
                self.received_at = time.monotonic()
                self.notify()
                return bool(self.outbox)
        except ProtocolError as error:
            self._count("malformed", error.message)
            self.fetching.ask_again()  # it may have been the answer
            return True
        self.received_at = time.monotonic()
        if isinstance(message, Taken):
            self._taken(message.seqs, message.freed)
            self._note_version(message.version)
        elif isinstance(message, News):
            self._note_version(message.version)
        elif isinstance(message, Welcome):
            self._begin(message)
        elif isinstance(message, WhoAreYou):
            self._begin_again(message)
        elif isinstance(message, Parted):
            self._parted = True
        elif not isinstance(message, WeightsHeader):
            self._trouble(message)
        self.notify()
        return True

    def _taken(self, seqs: tuple[int, ...], freed: tuple[int, ...]) -> None:
        for seq in seqs:
            self.in_flight.pop(seq, None)
        for seq in freed:
            self.lent.free(seq)

    def _note_version(self, version: int) -> None:
        self.fetching.note_version(version)
        if time.monotonic() < self.fetching.due() < math.inf:
            self.wake.set()  # the thread may wait for other things, and longer

    def _begin(self, welcome: Welcome) -> None:
        if welcome.number != self._number:
            return  # the answer to an earlier Hello: its batches are out of date
        if welcome.longest > self._longest:
            reason = f"the learner sends up to {welcome.longest} bytes, this actor takes {self._longest}"
            self._end(ChannelError(reason, "give Actor the same limits as Learner"))
            return
        same, self._learner = welcome.learner == self._learner, welcome.learner
        self._welcomed = True
        self.credits, self.max_message = welcome.credits, welcome.max_message
        self._heartbeat_s = welcome.heartbeat_ms / 1000
        self.wake.set()  # the thread may wait for what was due before
        self._shares = bool(self._host) and welcome.host == self._host
        self.fetching.begin(welcome.version, same=same)
        for seq in self.in_flight.keys() - set(welcome.held):
            outgoing = self.in_flight.pop(seq)  # whatever became of it, its credit comes back
            if same and seq > welcome.seq:  # lost with a connection; what another learner used is unknown
                self._send_again(outgoing)
        still = {*self.in_flight, *(outgoing.seq for outgoing in self.outbox)}
        self.lent.keep_only({*still, *welcome.lent})
        for seq in set(self.questions) - still:  # the answer may be lost, or its learner
            self._conclude(seq, None)

    def _begin_again(self, asked: WhoAreYou) -> None:
        """Send Hello. A batch that this learner did not keep came to no other: to send it again is to use it once."""
        self._welcomed, self._hello_at = False, float("-inf")
        self.wake.set()
        outgoing = None if asked.seq is None else self.in_flight.pop(asked.seq, None)
        if outgoing is not None:
            self._send_again(outgoing)

    def _send_again(self, outgoing: Outgoing) -> None:
        self.outbox = deque(sorted([outgoing, *self.outbox], key=lambda each: each.seq))

    def _send_as_frames(self, outgoing: Outgoing) -> None:
        """Send again what the learner could not open; share no more. The number is new: later ones may have come."""
        self._shares = False
        segment, outgoing.segment = outgoing.segment, None
        if segment is not None:
            outgoing.frames = self._socket.frames_of(split(outgoing.arrays, segment.block))
        self.lent.free(outgoing.seq)
        question = self.questions.pop(outgoing.seq, None)
        self._number_it(outgoing)
        if question is not None:
            self.questions[outgoing.seq] = question
        self.outbox.append(outgoing)
        if self._leaving:  # its goodbye was too early
            self._leaving = self._welcomed = False
            self._hello_at = float("-inf")

    def _number_it(self, outgoing: Outgoing) -> None:
        self._seq += 1
        outgoing.seq = self._seq
        if outgoing.segment is not None:
            self.lent.lend(outgoing.segment, outgoing.seq)

    def _conclude(self, seq: int, arrays: dict[str, Array] | None) -> None:
        question = self.questions.pop(seq, None)
        if question is not None:
            question.arrays, question.over = arrays, True

    def _trouble(self, message: FromLearner) -> None:
        if isinstance(message, Bye):
            self.over = True
            self._end(LearnerGone("the learner has ended the job", "nothing is left to do: end this process"))
        elif isinstance(message, Refused) and message.kind == "protocol":
            self._end(ProtocolError(message.reason, "install the same gpusched on both sides"))
        elif isinstance(message, Refused) and message.kind == "fenced":
            self._end(LearnerGone(message.reason, "end this process: another has its place"))
        elif isinstance(message, Refused):
            self.refused = message.kind == "revoked"
            self._end(ChannelError(f"the learner refused {self._name}: {message.reason}", "end this process"))
        elif isinstance(message, Dropped):
            self._count(message.kind, f"the learner dropped a message: {message.reason}")
            outgoing = None if message.seq is None else self.in_flight.pop(message.seq, None)
            if outgoing is not None and message.kind == "segment" and outgoing.segment is not None:
                self._send_as_frames(outgoing)
            elif outgoing is not None:
                self.lent.free(outgoing.seq)
                self._conclude(outgoing.seq, None)

    # Messages of the actor

    def _send_due(self, now: float) -> None:
        self._blocked = False
        if now >= self._check_at:
            self._check_network(now)
        if self.gone is not None or self._leaving:
            return
        if not self._welcomed:
            self._greet(now)
            return
        got = self.fetching.answer(speaking=bool(self.outbox) or now >= self._ping_at)
        if got is not None and self._send(got):
            self.fetching.answered()
        if now >= self.fetching.due() and self._send(self.fetching.request()):
            self.fetching.requested()
        if now >= self._ping_at and self._send(Ping(self.calls, self.inside)):
            self._ping_at = now + self._heartbeat_s
        while self.outbox and self._send_batch(self.outbox[0]):
            self.outbox.popleft()
        if self.closing_at is not None and not self.outbox:
            self._leaving = self._send(Leaving())

    def _check_network(self, now: float) -> None:
        """Give up where waiting has no use: with a key that is not let in, or when no learner sends anything."""
        late, self._check_at = now - self._check_at > _CHECK_S, now + _CHECK_S
        key = self._speaker.key
        patience = self._speaker.patience_s if self.received_at > self._began else self._speaker.first_s
        again, self._silent = self._silent, patience is not None and now - max(self.received_at, self._began) > patience
        if key is not None and self._socket.turned_away():
            self.refused = True
            problem = f"the learner does not let in {self._name}: the key {key!r} was revoked, or is of another job"
            self._end(ChannelError(problem, "ask the owner of the job for a new one: `gpusched keys new JOB NAME`"))
        elif self._silent and (again or not late):  # late: it may have been halted, and what came is still to be read
            problem = f"nothing came from the learner for {patience:.0f} s"
            self._end(LearnerGone(problem, "end this process; join again when the job runs"))
        elif now - max(self.received_at, self._connected_at) > _RECONNECT_S and not self._socket.writable():
            self._connected_at = now
            self._socket.reconnect()

    def _greet(self, now: float) -> None:
        if now < self._hello_at + HELLO_AGAIN_S:
            return
        hello = Hello(
            protocol=PROTOCOL,
            name=self._name,
            attempt=self._speaker.attempt,
            nonce=self._nonce,
            number=self._number + 1,
            learner=self.fetching.learner,
            version=self.fetching.have,
            host=self._host,
            incarnation=self._speaker.incarnation,
        )
        if self._send(hello):
            self._number += 1
            self._hello_at = now

    def _send_batch(self, outgoing: Outgoing) -> bool:
        if not self._send(outgoing.header(), outgoing.frames):
            return False
        self.in_flight[outgoing.seq] = outgoing
        if not self._ready:
            self._ready = True
            runtime.report_ready()
        return True

    def _send(self, message: FromActor, frames: Sequence[Part] = ()) -> bool:
        done = self._socket.send(0, [encode_header(message), *frames])
        if not done:
            self._blocked = True
            self._ping_at = -math.inf  # a learner wants to know soon which actor connected: the first message is short
        return done

    def _end(self, reason: GpuschedError) -> None:
        self.gone = reason
        self.notify()
        self.wake.set()  # it may be the application's thread that found it

    def _count(self, kind: str, reason: str) -> None:
        if kind not in self.dropped:
            log.warning("%s: %s", self._name, reason)
        self.dropped[kind] += 1
