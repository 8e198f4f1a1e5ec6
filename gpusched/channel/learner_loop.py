"""The learner's thread: it answers actors while the application trains, and never takes more than was agreed.

It owns the ROUTER socket and the roster. The application's side (learner.py) puts weights in, takes batches out, and
says when it is over; what it has to say to actors it sends from its own thread if the socket is free at that moment.
"""

import math
import secrets
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

import zmq

from gpusched.channel.framing import unpack_arrays, unpack_block
from gpusched.channel.lending import Borrowed, Owner
from gpusched.channel.link import Link, log, thread_ended
from gpusched.channel.messages import (
    AnswerHeader,
    BatchHeader,
    Bye,
    Dropped,
    FromActor,
    FromLearner,
    GetWeights,
    GotWeights,
    Hello,
    Leaving,
    News,
    Parted,
    Ping,
    Refused,
    Taken,
    WhoAreYou,
    decode_from_actor,
    encode_header,
    foreign_protocol,
)
from gpusched.channel.published import Published
from gpusched.channel.roster import Peer, Roster, Waiting, other_protocol
from gpusched.channel.shared import Memory, host_token
from gpusched.channel.values import ActorStatus, Array, Batch, Limits
from gpusched.errors import ChannelError, ProtocolError

__all__ = ["LearnerLoop"]

_MESSAGES_A_TURN: Final = 64  # then acknowledgements and weights have their turn
_MOST_COMPLAINTS: Final = 4096
_FAREWELL_S: Final = 2.0
_STANDS_BACK_S: Final = 1.0
_SPARE_S: Final = 0.02  # after a publish: when its actors have been served
_LARGEST_SPARE: Final = 64 << 20


class LearnerLoop:
    """What run() does in its thread, and the few things that other threads may do to it."""

    def __init__(self, link: Link, limits: Limits) -> None:
        self.dropped: Counter[str] = Counter()
        self.failure: ChannelError | None = None
        self._inbox: SimpleQueue[Waiting | None] = SimpleQueue()
        self._standing_in = threading.Lock()
        self._stand_in: int | None = None
        self._link = link
        self._limits = limits
        self._taken: deque[Waiting] = deque()
        self._answers: deque[tuple[Batch, AnswerHeader, list[zmq.Frame]]] = deque()
        self._nonce = secrets.token_hex(8)
        self._lock = threading.Lock()  # around the socket, the roster, the weights and what is borrowed
        self._roster = Roster(limits, self._nonce, host_token() if limits.share_memory else "")
        self._borrowed = Borrowed()
        self._published: Published | None = None
        self._freed: dict[Owner, list[int]] = {}
        self._floor = 0
        self._spare: Memory | None = None
        self._spare_size, self._spare_due = 0, math.inf
        self._announced = 0
        self._next_news = 0.0
        self._complaints: set[tuple[bytes, str]] = set()
        self._over = False
        self._ended = False

    # What other threads may call

    def publish(self, weights: Published) -> int:
        """Replace the weights; return their version."""
        with self._lock:
            self._floor += 1
            self._published = weights.as_version(self._floor)
            version = self._floor
            if weights.segment is not None and weights.segment.segment.size <= _LARGEST_SPARE:
                self._spare_size, self._spare_due = weights.segment.segment.size, time.monotonic() + _SPARE_S
        self._speak()
        self._link.wake.set()  # for the spare
        return version

    def take_spare(self) -> Memory | None:
        """Return memory for the next weights if it is there already: they are all of one size."""
        with self._lock:
            spare, self._spare = self._spare, None
            return spare

    @property
    def version(self) -> int:
        """The version of the newest weights, 0 before the first."""
        with self._lock:
            return 0 if self._published is None else self._published.version

    def next(self, end: float | None) -> Waiting | None:
        """Return the next batch, None after stop(). Raises queue.Empty at `end`, a time of time.monotonic().

        While the inbox is empty, one of the threads that wait here stands in for the loop.
        """
        with suppress(Empty):
            return self._inbox.get_nowait()
        if not self._standing_in.acquire(blocking=False):
            return self._inbox.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        self._stand_in = threading.get_ident()
        self._link.stand_in()
        try:
            while True:
                with suppress(Empty):
                    return self._inbox.get_nowait()
                left = None if end is None else end - time.monotonic()
                self._link.follow(left)
                with self._lock:
                    self._guarded_turn()
                if left is not None and left <= 0:
                    return self._inbox.get_nowait()
        finally:
            self._link.stand_back()
            self._stand_in = None
            self._standing_in.release()

    def stop(self) -> None:
        """End a next(), now or later. Safe in a signal handler."""
        self._inbox.put(None)
        self._link.nudge.set()

    def take(self, waiting: Waiting) -> None:
        """Say that the application took this batch: its actor may send another."""
        waiting.batch = None  # it is the application's now, and so is its memory
        self._taken.append(waiting)
        self._speak()

    def answer(self, batch: Batch, header: AnswerHeader, frames: list[zmq.Frame]) -> None:
        """Send this to the process that sent `batch`, if it is still there."""
        self._answers.append((batch, header, frames))
        self._speak()

    def status(self) -> tuple[ActorStatus, ...]:
        """Return all actors ever seen."""
        with self._lock:
            return self._roster.status(time.monotonic())

    def end(self, *, over: bool) -> None:
        """End the thread; `over`: tell the actors that there will be no other learner."""
        self._over = over
        self._ended = True
        self._link.wake.set()

    def close_link(self) -> None:
        """Give the socket back, after the thread has ended."""
        got = [lock for lock in (self._standing_in, self._lock) if lock.acquire(timeout=_STANDS_BACK_S)]
        self._link.close()
        for lock in got:
            lock.release()

    # The thread

    def run(self) -> None:
        """Serve until end(). An error that should not happen ends the loop and shows in `failure`."""
        try:
            while not self._ended and self.failure is None:
                due = min(self._next_news, self._spare_due) - time.monotonic()
                self._link.poll(min(self._limits.heartbeat_s, max(0.0, due)))
                with self._lock:
                    self._turn()
                if time.monotonic() >= self._spare_due:
                    self._make_spare()
            if self._over:
                self._part()
        except Exception as error:  # noqa: BLE001 (whatever it is, the application must hear of it)
            self._fail(error)
        finally:
            with self._lock:
                self._borrowed.close()
                self._published = self._spare = None

    def _speak(self) -> None:
        """Take a turn in this thread: it is the shorter way. If the loop has the socket now, it is told to take one."""
        if not self._lock.acquire(blocking=False):
            self._link.wake.set()
            return
        try:
            self._guarded_turn()
        finally:
            self._lock.release()

    def _make_spare(self) -> None:
        """Take memory for the next weights now, when nobody waits for it: most of a publish would be that."""
        self._spare_due = math.inf
        try:
            made = Memory(self._spare_size)
            made.allocate()
        except OSError:  # publish() will find other ways
            return
        with self._lock:
            self._spare = made

    def _guarded_turn(self) -> None:
        try:
            if not self._ended and self.failure is None:
                self._turn()
        except Exception as error:  # noqa: BLE001 (as in run)
            self._fail(error)

    def _turn(self) -> None:
        self._give_answers()
        self._acknowledge()
        self._announce()
        self._listen()  # last: see Link

    def _fail(self, error: Exception) -> None:
        self.failure = thread_ended(error)
        self.stop()

    def _part(self) -> None:
        """Tell all actors that it is over, and wait a moment for each to say that it heard.

        A connection that breaks takes with it what its other end has not read: libzmq with ZMQ_IMMEDIATE, and TCP.
        """
        until = time.monotonic() + _FAREWELL_S
        with self._lock:
            for peer in self._roster.connections():
                self._say(peer, Bye())
        while self._roster.connections() and (left := until - time.monotonic()) > 0:
            self._link.poll(left)
            with self._lock:
                self._listen()

    def _listen(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            parts = self._link.receive()
            if parts is None:
                break
            self._hear(parts)
        else:
            self._link.wake.set()  # more may be there

    def _hear(self, parts: list[zmq.Frame]) -> None:
        route, now = parts[0].bytes, time.monotonic()
        header = parts[1].buffer if len(parts) > 1 else b""
        try:
            message = decode_from_actor(header)
        except ProtocolError as error:
            protocol = foreign_protocol(header)
            if protocol is None:
                self._complain(route, "header", error)
            else:
                self._refuse(route, other_protocol(protocol))
            return
        if isinstance(message, Hello):
            self._welcome(route, message, now)
            return
        peer = self._roster.speaker(route, now)
        if peer is None:
            self._reply(route, WhoAreYou(message.seq if isinstance(message, BatchHeader) else None))
        else:
            self._heed(peer, message, parts)

    def _heed(self, peer: Peer, message: FromActor, parts: list[zmq.Frame]) -> None:
        if isinstance(message, BatchHeader):
            self._keep(parts[0].bytes, peer, message, parts[2:])
        elif isinstance(message, GetWeights):
            self._give_weights(peer, message.have)
        elif isinstance(message, GotWeights):
            self._offered(peer, message)
        elif isinstance(message, Ping):
            self._roster.ping(peer, message, time.monotonic())
        elif isinstance(message, Leaving):
            self._say(peer, Parted())
            self._roster.lost(peer)

    def _welcome(self, route: bytes, hello: Hello, now: float) -> None:
        if self._over:
            self._reply(route, Bye())
            return
        answer = self._roster.hello(route, hello, now)
        if isinstance(answer, Refused):
            self._refuse(route, answer)
            return
        self._raise_version(hello)
        lent = self._borrowed.in_use((answer.name, answer.nonce))
        self._say(answer, self._roster.welcome(answer, hello.number, self._newest_for(answer), lent))
        self._offer(answer)

    def _refuse(self, route: bytes, answer: Refused) -> None:
        self._count(route, answer.kind, answer.reason)
        self._reply(route, answer)

    def _raise_version(self, hello: Hello) -> None:
        """Keep versions growing over a restart: who holds a former learner's weights must see ours as newer."""
        if hello.learner in {"", self._nonce} or hello.version < self._floor:
            return
        self._floor = hello.version
        if self._published is not None:
            self._floor += 1
            self._published = self._published.as_version(self._floor)

    def _keep(self, route: bytes, peer: Peer, header: BatchHeader, frames: list[zmq.Frame]) -> None:
        kind = "credit"
        try:
            self._roster.admit(peer, header)
            kind = "arrays" if header.segment is None else "segment"
            arrays = self._unpack(peer, header, frames)
        except ProtocolError as error:
            self._complain(route, kind, error, header.seq)
            return
        batch = Batch(
            arrays=arrays,
            actor=peer.name,
            version=header.version,
            meta=header.meta,
            seq=header.seq,
            asks=header.asks,
            process=peer.nonce,
        )
        self._inbox.put(self._roster.keep(peer, batch, sum(array.nbytes for array in arrays.values())))
        if self._stand_in not in {None, threading.get_ident()}:
            self._link.nudge.set()

    def _unpack(self, peer: Peer, header: BatchHeader, frames: list[zmq.Frame]) -> dict[str, Array]:
        if header.segment is None:
            return unpack_arrays(header.arrays, [frame.buffer for frame in frames], self._limits.max_message)
        if not peer.shares:
            raise ProtocolError("a segment came from an actor that shares no memory with this learner")
        block = self._borrowed.take((peer.name, peer.nonce), header.segment, header.seq)
        return unpack_block(header.arrays, block, self._limits.max_message)

    def _newest_for(self, peer: Peer) -> int:
        """Return the version that this actor is told of. One that shares memory need not ask: it is offered them."""
        if self._published is None:
            return 0
        return peer.version if peer.shares and self._published.segment is not None else self._published.version

    def _offer(self, peer: Peer) -> None:
        """Let an actor on this host know the segment of the newest weights, unless it has an older offer to answer."""
        published = self._published
        if published is None or published.segment is None or not peer.shares or peer.offered is not None:
            return
        if published.version > peer.version:
            peer.version, peer.offered = published.version, published
            self._say(peer, published.header(shared=True))

    def _offered(self, peer: Peer, message: GotWeights) -> None:
        offered, peer.offered = peer.offered, None
        if message.opened:
            self._offer(peer)
            return
        if offered is not None:  # it was kept for it, so it is out of its reach, now and later
            log.info("%s cannot open segments of the learner: it gets frames", peer.name)
            peer.shares = False
        self._give_weights(peer, 0)

    def _give_weights(self, peer: Peer, have: int) -> None:
        peer.told = False
        published = self._published
        if published is not None and published.version > have:
            peer.version = published.version
            self._say(peer, published.header(shared=False), published.frames())

    def _give_answers(self) -> None:
        while self._answers:
            batch, header, frames = self._answers.popleft()
            peer = self._roster.process(batch.actor, batch.process)
            if peer is not None:
                self._say(peer, header, frames)

    def _acknowledge(self, *, all_freed: bool = False) -> None:
        """Tell actors which batches were taken, and by the way which segments are free: they have some to spare."""
        taken: dict[str, tuple[Peer, list[int]]] = {}
        while self._taken:
            waiting = self._taken.popleft()
            if self._roster.taken(waiting):
                taken.setdefault(waiting.peer.name, (waiting.peer, []))[1].append(waiting.seq)
        for owner, seq in self._borrowed.collect():
            self._freed.setdefault(owner, []).append(seq)
        if all_freed:
            for owner in self._freed:
                peer = self._roster.process(*owner)
                if peer is not None:
                    taken.setdefault(peer.name, (peer, []))
        for peer, seqs in taken.values():
            version = self._newest_for(peer)
            peer.told = version > peer.version
            self._say(peer, Taken(tuple(seqs), version, tuple(self._freed.pop((peer.name, peer.nonce), ()))))

    def _announce(self) -> None:
        """Tell of new weights those who are not told yet; and everybody, now and then, that the learner lives."""
        newest, now = 0 if self._published is None else self._published.version, time.monotonic()
        due = now >= self._next_news
        if due:
            self._next_news = now + self._limits.heartbeat_s
            self._tidy(now)
        if not due and newest == self._announced:
            return
        self._announced = newest
        for peer in self._roster.within_reach(now):
            self._offer(peer)
            version = self._newest_for(peer)
            if due or (version > peer.version and not peer.told):
                peer.told = version > peer.version
                self._say(peer, News(version))

    def _tidy(self, now: float) -> None:
        """Let the silent have no memory: not the old weights that they were offered, nor their own that nobody uses."""
        near = self._roster.within_reach(now)
        for peer in self._roster.connections():
            if peer.offered is not None and peer not in near:
                peer.offered = None
        self._acknowledge(all_freed=True)
        self._freed.clear()  # what is left is for processes that are gone
        self._borrowed.trim({(peer.name, peer.nonce) for peer in near})

    def _say(self, peer: Peer, message: FromLearner, frames: list[zmq.Frame] | None = None) -> None:
        if peer.route is not None and not self._reply(peer.route, message, frames):
            # Something would be missing there: it has to say Hello again, which puts everything right.
            self._roster.lost(peer)

    def _reply(self, route: bytes, message: FromLearner, frames: list[zmq.Frame] | None = None) -> bool:
        return self._link.send([route, encode_header(message), *(frames or ())])

    def _complain(self, route: bytes, kind: str, error: ProtocolError, seq: int | None = None) -> None:
        self._count(route, kind, error.message)
        self._reply(route, Dropped(kind, error.message[:900], seq))

    def _count(self, route: bytes, kind: str, reason: str) -> None:
        self.dropped[kind] += 1
        if (route, kind) in self._complaints:
            return
        if len(self._complaints) >= _MOST_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add((route, kind))
        peer = self._roster.speaker(route, time.monotonic())
        log.warning("dropped a message of %s: %s", peer.name if peer else f"peer {route.hex()}", reason)
