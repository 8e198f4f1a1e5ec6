"""The actors, by name: which process speaks for each now, and what of it waits for the application.

Pure bookkeeping of the learner's side: messages and times in, answers out. It must not know sockets or threads.
A name outlives its processes: a new process takes the name over, and what the old one still sends is ignored. One of a
higher incarnation does so at once and for good, and what the former left is not used (docs/decisions/0019).
"""

from collections import deque
from typing import Final

import msgspec

from gpusched.channel.messages import PROTOCOL, BatchHeader, Hello, Ping, Refused, Welcome
from gpusched.channel.transport import Route
from gpusched.channel.values import ActorStatus, Batch, Limits
from gpusched.errors import ProtocolError

__all__ = ["ActorRecord", "ActorRegistry", "Waiting", "other_protocol"]

_MOST_ACTORS: Final = 10_000
_REMEMBERED_PROCESSES: Final = 16


class Waiting(msgspec.Struct, eq=False):
    """A batch that the application has not taken. `batch` None: it was given up."""

    peer: "ActorRecord"
    nonce: str
    seq: int
    batch: Batch | None


class ActorRecord(msgspec.Struct, eq=False, kw_only=True):
    """One actor. `key`: the public one that its name belongs to for ever, "" for all on this host."""

    name: str
    key: str
    nonce: str
    attempt: int
    incarnation: int
    seen: float
    called: float
    route: Route | None = None
    """Its connection, None without."""
    seq: int = 0
    calls: int = 0
    inside: bool = False
    notified: bool = False
    """Of newer weights, and it has not asked for them yet; until then it is notified of no others."""
    version: int = 0
    """The weights that it was given."""
    shares: bool = False
    """It can open the learner's segments."""
    offered: dict[int, object] = {}
    """The versions that it was offered as segments, each kept until it has answered."""
    batches: int = 0
    bytes: int = 0
    waiting: list[Waiting] = []
    retired: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=_REMEMBERED_PROCESSES))

    @property
    def owner(self) -> tuple[str, str]:
        """The process that speaks for it now: name and nonce."""
        return (self.name, self.nonce)


def other_protocol(protocol: int) -> Refused:
    """Return the answer to an actor of another protocol version."""
    return Refused("protocol", f"the learner speaks protocol {PROTOCOL}, this actor {protocol}")


def _replaced(hello: Hello) -> Refused:
    return Refused("replaced", f"another process is {hello.name} now")


class ActorRegistry:
    """All actors of one learner. `learner` is the nonce of its process, `host` its token, "" to share no memory."""

    def __init__(self, limits: Limits, learner: str, host: str = "") -> None:
        self._limits = limits
        self._host = host
        self._learner = learner
        self._by_name: dict[str, ActorRecord] = {}
        self._by_route: dict[Route, ActorRecord] = {}
        self.past = 0
        """Batches that were given up because a higher incarnation of their actor came."""

    def hello(self, route: Route, hello: Hello, now: float, key: str = "") -> ActorRecord | Refused:
        """Let this process, which has this key, speak for its name over this connection, or return why not."""
        if hello.protocol != PROTOCOL:
            return other_protocol(hello.protocol)
        peer = self._by_name.get(hello.name)
        if peer is None:
            if len(self._by_name) >= _MOST_ACTORS:
                return Refused("full", f"there are {len(self._by_name)} names of actors already")
            peer = ActorRecord(
                name=hello.name,
                key=key,
                nonce=hello.nonce,
                attempt=hello.attempt,
                incarnation=hello.incarnation,
                seen=now,
                called=now,
            )
            self._by_name[hello.name] = peer
        elif peer.key != key:
            return Refused("identity", f"{hello.name} is another's")
        elif (refused := self._succeed(peer, hello, now)) is not None:
            return refused
        self._move(peer, route)
        peer.seen, peer.notified, peer.version = now, False, hello.version
        peer.shares = bool(self._host) and not key and hello.host == self._host
        peer.offered.clear()
        return peer

    def welcome(self, peer: ActorRecord, number: int, version: int, lent: tuple[int, ...] = ()) -> Welcome:
        """Return the answer to hello `number`, with the batches of that process that still wait."""
        return Welcome(
            protocol=PROTOCOL,
            learner=self._learner,
            number=number,
            credits=self._limits.in_flight,
            version=version,
            heartbeat_ms=max(1, round(self._limits.heartbeat_s * 1000)),
            max_message=self._limits.longest(peer.key),
            seq=peer.seq,
            held=tuple(waiting.seq for waiting in peer.waiting if waiting.nonce == peer.nonce),
            host="" if peer.key else self._host,
            lent=lent,
            longest=self._limits.max_message,
        )

    def speaker(self, route: Route, now: float, key: str = "") -> ActorRecord | None:
        """Return the actor that speaks over this connection, and note that it lives. None: it has to send Hello."""
        peer = self._by_route.get(route)
        if peer is None or peer.key != key:  # a peer chooses its route, and may choose one that was another's
            return None
        peer.seen = now
        return peer

    def process(self, name: str, nonce: str) -> ActorRecord | None:
        """Return the actor `name` while that process speaks for it, None otherwise."""
        peer = self._by_name.get(name)
        return peer if peer is not None and peer.nonce == nonce else None

    def ping(self, peer: ActorRecord, ping: Ping, now: float) -> None:
        """Note what the actor's application does."""
        if ping.inside or ping.calls != peer.calls:
            peer.called = now
        peer.calls, peer.inside = ping.calls, ping.inside

    def admit(self, peer: ActorRecord, header: BatchHeader) -> None:
        """Count this batch as sent. Raises ProtocolError if it is late or repeated, or too much."""
        if header.seq <= peer.seq:
            raise ProtocolError(f"batch {header.seq} came after batch {peer.seq}")
        most = self._limits.in_flight
        if len(peer.waiting) >= most and sum(waiting.nonce == peer.nonce for waiting in peer.waiting) >= most:
            raise ProtocolError(f"more than {self._limits.in_flight} batches in flight")
        peer.seq = header.seq

    def keep(self, peer: ActorRecord, batch: Batch, size: int) -> Waiting:
        """Let an admitted batch of `size` bytes wait. An older process's makes room: one name holds K at the most."""
        if len(peer.waiting) >= self._limits.in_flight:
            self._give_up(peer.waiting[0])
        waiting = Waiting(peer, peer.nonce, batch.seq, batch)
        peer.waiting.append(waiting)
        peer.batches += 1
        peer.bytes += size
        return waiting

    def taken(self, waiting: Waiting) -> bool:
        """Forget a batch that the application took; return whether the process that sent it is there to be notified."""
        if waiting in waiting.peer.waiting:
            self._give_up(waiting)
        return waiting.nonce == waiting.peer.nonce and waiting.peer.route is not None

    def lost(self, peer: ActorRecord) -> None:
        """Forget the connection; the process may come back over another one."""
        if peer.route is not None:
            self._by_route.pop(peer.route, None)
            peer.route = None
            peer.offered.clear()

    def forget(self, key: str) -> None:
        """Forget the connections of all peers with this key."""
        for peer in self.connections():
            if peer.key == key:
                self.lost(peer)

    def connections(self) -> list[ActorRecord]:
        """Return the actors with a connection, silent ones too."""
        return list(self._by_route.values())

    def within_reach(self, now: float) -> list[ActorRecord]:
        """Return the actors that are worth talking to: connected, and not silent."""
        return [peer for peer in self._by_name.values() if self._connected(peer, now)]

    def status(self, now: float) -> tuple[ActorStatus, ...]:
        """Return all actors, in the order of their first Hello."""
        return tuple(self._status(peer, now) for peer in self._by_name.values())

    def _status(self, peer: ActorRecord, now: float) -> ActorStatus:
        return ActorStatus(
            name=peer.name,
            connected=self._connected(peer, now),
            alive=self._connected(peer, now) and now - peer.called <= self._limits.stuck_s,
            batches=peer.batches,
            bytes=peer.bytes,
            waiting=len(peer.waiting),
            seen_s=max(0.0, now - peer.seen),
            version=peer.version,
            attempt=peer.attempt,
        )

    def _succeed(self, peer: ActorRecord, hello: Hello, now: float) -> Refused | None:
        """Let this process speak for the name of `peer` from now on, or return why not; it may do so already."""
        if hello.incarnation < peer.incarnation:
            there = f"incarnation {peer.incarnation} of {hello.name} is there"
            return Refused("fenced", f"{there}, and incarnation {hello.incarnation} is over")
        newer = hello.incarnation > peer.incarnation
        if hello.nonce != peer.nonce:
            earlier = not newer and hello.attempt < peer.attempt
            if hello.nonce in peer.retired or (earlier and self._connected(peer, now)):
                return _replaced(hello)
            peer.retired.append(peer.nonce)
            peer.nonce, peer.attempt, peer.seq, peer.calls, peer.called = hello.nonce, hello.attempt, 0, 0, now
        if newer:
            peer.incarnation = hello.incarnation
            self.past += len(peer.waiting)
            while peer.waiting:
                self._give_up(peer.waiting[0])
        return None

    def _give_up(self, waiting: Waiting) -> None:
        """Let a batch wait no longer, and no caller take it."""
        waiting.peer.waiting.remove(waiting)
        waiting.batch = None

    def _connected(self, peer: ActorRecord, now: float) -> bool:
        return peer.route is not None and now - peer.seen <= self._limits.silence_s

    def _move(self, peer: ActorRecord, route: Route) -> None:
        self.lost(peer)
        former = self._by_route.get(route)
        if former is not None:  # the same connection under another name
            former.route = None
            former.offered.clear()
        self._by_route[route] = peer
        peer.route = route
