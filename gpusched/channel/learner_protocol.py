"""The learner's side of the protocol: its actors, their batches, what they are given.

It must not know threads: learner_thread.py sees to it that one at a time is in here.
"""

import secrets
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from gpusched.channel.framing import unpack_arrays, unpack_block
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
    Join,
    Leaving,
    News,
    Parted,
    Ping,
    Refused,
    Taken,
    WeightsHeader,
    WhoAreYou,
    decode_from_actor,
    encode_header,
    foreign_protocol,
)
from gpusched.channel.registry import ActorRecord, ActorRegistry, Waiting, other_protocol
from gpusched.channel.remote.hosts import Hosts
from gpusched.channel.shm.lending import Owner, SegmentMap
from gpusched.channel.shm.segment import host_token
from gpusched.channel.shm.weights_pool import Published, WeightsSegmentPool, most_offers
from gpusched.channel.transport import Part, Received, Route, Transport, log
from gpusched.channel.values import Array, Batch, Limits
from gpusched.errors import ProtocolError

if TYPE_CHECKING:
    from gpusched.channel.remote.authentication import ZapAuthenticator

__all__ = ["LearnerProtocol"]

_MESSAGES_A_TURN: Final = 64  # then acknowledgements and weights have their turn
_MOST_COMPLAINTS: Final = 4096
_USER: Final = "User-Id"  # the public key, as the authenticator gave it to libzmq
_ADDRESS: Final = "Peer-Address"


class LearnerProtocol:
    """A learner's side of the talk with its actors. Called with the lock of `link` held.

    `authenticator`: the guard of connections from the network; `hosts`: where they are.
    """

    def __init__(
        self, link: Transport, limits: Limits, hosts: Hosts, authenticator: "ZapAuthenticator | None" = None
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._link, self._limits, self._hosts = link, limits, hosts
        self._authenticator = authenticator
        self._key = self._address = ""  # of the sender of the present message: of the network only
        self._taken: deque[Waiting] = deque()
        self._answers: deque[tuple[Batch, AnswerHeader, list[Part]]] = deque()
        self._nonce = secrets.token_hex(8)
        self._registry = ActorRegistry(limits, self._nonce, host_token() if limits.share_memory else "")
        self._borrowed = SegmentMap()
        self._pool = WeightsSegmentPool()
        self._published: Published | None = None
        self._freed: dict[Owner, list[int]] = {}
        self._floor, self._announced, self._next_news = 0, 0, 0.0
        self._complaints: set[tuple[Route | str, str]] = set()
        self._over = False

    def _turn(self) -> None:
        while self._authenticator is not None and self._authenticator.revoked:
            self._registry.forget(self._authenticator.revoked.popleft())
        self._send_due()
        self._listen()  # last: see Socket.reports_once

    def _send_due(self) -> None:
        for owner, seq in self._borrowed.collect():
            self._freed.setdefault(owner, []).append(seq)
        self._acknowledge(self._give_answers())
        self._announce()

    def _arrived(self, waiting: Waiting) -> None:
        raise NotImplementedError

    def _listen(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            received = self._link.receive()
            if received is None:
                break
            self._handle(received)
        else:
            self._link.wake.set()  # more may be there

    def _handle(self, received: Received) -> None:
        route, header, _, envelope = received
        now = time.monotonic()
        self._key = self._address = ""
        if envelope is not None and self._authenticator is not None:
            self._note_sender(self._authenticator, envelope)
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
        elif isinstance(message, Join):
            self._invite(route, message)
        elif (peer := self._registry.speaker(route, now, self._key)) is None:
            self._reply(route, WhoAreYou(message.seq if isinstance(message, BatchHeader) else None))
        else:
            self._dispatch(peer, message, received)

    def _note_sender(self, authenticator: "ZapAuthenticator", envelope: Any) -> None:
        """Find out whose key this message came with, and from where."""
        self._key = str(envelope.get(_USER))
        self._address = str(envelope.get(_ADDRESS)).removeprefix("::ffff:")
        authenticator.note_user(envelope, self._key)

    def _dispatch(self, peer: ActorRecord, message: FromActor, received: Received) -> None:
        if isinstance(message, BatchHeader):
            self._keep(received.route, peer, message, received.frames)
        elif isinstance(message, GetWeights):
            self._give_weights(peer, message.have)
        elif isinstance(message, GotWeights):
            self._offered(peer, message)
        elif isinstance(message, Ping):
            self._registry.ping(peer, message, time.monotonic())
        elif isinstance(message, Leaving):
            self._send(peer, Parted())
            self._registry.lost(peer)

    def _welcome(self, route: Route, hello: Hello, now: float) -> None:
        if self._over:
            self._reply(route, Bye())
            return
        refused = self._not_let_in() or self._hosts.refusal(self._key, hello.name, self._address)
        answer = refused or self._registry.hello(route, hello, now, self._key)
        if isinstance(answer, Refused):
            self._refuse(route, answer)
            return
        if (given_up := self._registry.past - self.dropped["past"]) > 0:  # this process is of a higher incarnation
            self.dropped["past"] += given_up
            log.info("dropped %d batches of former incarnations: %s has come again", given_up, answer.name)
        self._raise_version(hello)
        self._pool.retire(answer.owner)
        lent = self._borrowed.in_use(answer.owner)
        self._send(answer, self._registry.welcome(answer, hello.number, self._newest_for(answer), lent))
        self._offer(answer)

    def _invite(self, route: Route, join: Join) -> None:
        answer = self._not_let_in() or self._hosts.invite(self._key, join, self._address)
        if isinstance(answer, Refused):
            self._refuse(route, answer)
            return
        try:
            self._reply(route, answer)
        except ProtocolError as error:
            self._refuse(route, Refused("uninvited", error.message[:900]))

    def _not_let_in(self) -> Refused | None:
        if not self._key or (self._authenticator is not None and self._authenticator.lets_in(self._key)):
            return None
        return Refused("revoked", "the key was revoked")

    def _refuse(self, route: Route, answer: Refused) -> None:
        self._count(route, answer.kind, answer.reason)
        self._reply(route, answer)

    def _raise_version(self, hello: Hello) -> None:
        """Keep versions growing over a restart: an actor with a former learner's weights must see ours as newer."""
        if hello.learner in {"", self._nonce} or hello.version < self._floor:
            return
        self._floor = hello.version
        if self._published is not None:
            self._floor += 1
            self._published = replace(self._published, version=self._floor)
            self._link.wake.set()  # the other actors have to know of it

    def _keep(self, route: Route, peer: ActorRecord, header: BatchHeader, frames: list[memoryview]) -> None:
        kind = "credit"
        try:
            self._registry.admit(peer, header)
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
        self._arrived(self._registry.keep(peer, batch, sum(array.nbytes for array in arrays.values())))

    def _unpack(self, peer: ActorRecord, header: BatchHeader, frames: list[memoryview]) -> dict[str, Array]:
        if header.segment is None:
            return unpack_arrays(header.arrays, frames, self._limits.max_message)
        if not peer.shares:
            raise ProtocolError("a segment came from an actor that shares no memory with this learner")
        block = self._borrowed.take(peer.owner, header.segment, header.seq)
        return unpack_block(header.arrays, block, self._limits.max_message)

    def _newest_for(self, peer: ActorRecord) -> int:
        """Return the version to notify this actor of. One that shares memory need not ask: it is offered them."""
        if self._published is None:
            return 0
        return peer.version if peer.shares and self._published.segment is not None else self._published.version

    def _offer(self, peer: ActorRecord) -> None:
        """Let an actor on this host know the segment of the newest weights, unless it has enough offers to answer."""
        published = self._published
        if published is None or published.segment is None or published.offer is None or not peer.shares:
            return
        room = len(peer.offered) < most_offers(published.segment.segment.size)
        if room and peer.route is not None and published.version > peer.version:
            peer.version = published.version
            peer.offered[published.version] = published
            self._pool.lend(published.segment, published.version, peer.owner)
            self._send(peer, published.offer)

    def _offered(self, peer: ActorRecord, message: GotWeights) -> None:
        self._pool.give_back(peer.owner, message.freed)
        was_kept = message.version in peer.offered
        for version in [version for version in peer.offered if version <= message.version]:
            del peer.offered[version]
        if message.opened:
            self._offer(peer)
        elif peer.shares:
            if was_kept:  # so it is out of its reach, now and later
                log.info("%s cannot open segments of the learner: it gets frames", peer.name)
                peer.shares = False
                peer.offered.clear()
                self._pool.retire(peer.owner)
            self._give_weights(peer, 0)

    def _give_weights(self, peer: ActorRecord, have: int) -> None:
        """Give the newest, if it is newer."""
        peer.notified = False
        published = self._published
        if published is not None and published.version > have:
            peer.version = published.version
            self._send(peer, WeightsHeader(published.version, published.specs), published.frames)

    def _give_answers(self) -> set[tuple[Owner, int]]:
        """Send the answers; return whose batches they are, and their numbers."""
        answered = set()
        while self._answers:
            batch, header, frames = self._answers.popleft()
            owner = (batch.actor, batch.process)
            peer = self._registry.process(*owner)
            if peer is not None:
                freed = self._freed.pop(owner, None)
                self._send(peer, header if freed is None else replace(header, freed=tuple(freed)), frames)
                answered.add((owner, batch.seq))
        return answered

    def _acknowledge(self, answered: Collection[tuple[Owner, int]] = (), *, all_freed: bool = False) -> None:
        """Send actors which batches were taken, and by the way which segments are free: they have some to spare.

        An answer shows by itself that its batch was taken.
        """
        taken: dict[str, tuple[ActorRecord, list[int]]] = {}
        while self._taken:
            waiting = self._taken.popleft()
            if self._registry.taken(waiting) and ((waiting.peer.name, waiting.nonce), waiting.seq) not in answered:
                taken.setdefault(waiting.peer.name, (waiting.peer, []))[1].append(waiting.seq)
        if all_freed:
            for owner in self._freed:
                peer = self._registry.process(*owner)
                if peer is not None:
                    taken.setdefault(peer.name, (peer, []))
        for peer, seqs in taken.values():
            version = self._newest_for(peer)
            peer.notified = version > peer.version
            self._send(peer, Taken(tuple(seqs), version, tuple(self._freed.pop(peer.owner, ()))))

    def _announce(self) -> None:
        """Notify actors of new weights, once; and all, now and then, that the learner lives."""
        newest, now = 0 if self._published is None else self._published.version, time.monotonic()
        due = now >= self._next_news
        if due:
            self._next_news = now + self._limits.heartbeat_s
            self._tidy(now)
        if not due and newest == self._announced:
            return
        self._announced = newest
        for peer in self._registry.within_reach(now):
            self._offer(peer)
            version = self._newest_for(peer)
            if due or (version > peer.version and not peer.notified):
                peer.notified = version > peer.version
                self._send(peer, News(version))

    def _tidy(self, now: float) -> None:
        """Let the silent have no memory: not the old weights that they were offered, nor their own unused ones."""
        near = self._registry.within_reach(now)
        for peer in self._registry.connections():
            if peer not in near:
                peer.offered.clear()
        self._acknowledge(all_freed=True)
        self._freed.clear()  # what is left is for processes that are gone
        owners = {peer.owner for peer in near}
        self._borrowed.trim(owners)
        self._pool.retire_all_but(owners)

    def _send(self, peer: ActorRecord, message: FromLearner | bytes, frames: Sequence[Part] = ()) -> None:
        if peer.route is not None and not self._reply(peer.route, message, frames):
            self._registry.lost(peer)  # it lacks something now: it has to send Hello again, which puts everything right

    def _reply(self, route: Route, message: FromLearner | bytes, frames: Sequence[Part] = ()) -> bool:
        header = message if isinstance(message, bytes) else encode_header(message)
        return self._link.send(route, [header, *frames])

    def _complain(self, route: Route, kind: str, error: ProtocolError, seq: int | None = None) -> None:
        self._count(route, kind, error.message)
        self._reply(route, Dropped(kind, error.message[:900], seq))

    def _count(self, route: Route, kind: str, reason: str) -> None:
        self.dropped[kind] += 1
        who = self._key or route
        if (who, kind) in self._complaints:
            return
        if len(self._complaints) >= _MOST_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add((who, kind))
        peer = self._registry.speaker(route, time.monotonic(), self._key)
        name = peer.name if peer else self._address or f"peer {route.hex() if isinstance(route, bytes) else route}"
        log.warning("dropped a message of %s: %s", name, reason)
