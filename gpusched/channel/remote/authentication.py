"""Admission from the network: peers without a key are turned away, and a connection that goes too far is cut.

One thread of the learner's process answers libzmq's questions about keys (ZAP, rfc.zeromq.org/spec/27) and reads its
events. It fails closed: when this thread is not there, no handshake goes through, and what was connected is shut.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from gpusched.channel.network import NetworkSocket, read_event
from gpusched.channel.remote.connections import Connections
from gpusched.channel.transport import Wake, log, start_thread
from gpusched.channel.values import Limits
from gpusched.joining.keys import AllowList

__all__ = ["ZapAuthenticator"]

_ZAP: Final = "inproc://zeromq.zap.01"
_CURVE: Final = b"CURVE"
_CHECK_S: Final = 0.5
_CHECK_OFTEN_S: Final = 0.1  # while a peer is connected: see Connections
_A_CONNECTION_S: Final = 0.0005  # each makes checks rarer by that, so that they never take more than a little
_MOST_NAMED: Final = 4096
_THREAD_ENDS_S: Final = 5.0
_FAILED: Final = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL),
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH),
}
_EVENTS: Final = sum(_FAILED) | int(zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
_MANY: Final = 4096  # more than may wait: all that happened before a question is known when it is answered
_OTHERS_KEY: Final = 0x11000001  # zmq.h, ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


class ZapAuthenticator:
    """From construction on it can be bound behind; open() lets in. `changed` is called when a peer was cut.

    `revoked`: users whose key was good and is not any more, for the learner to take from it.
    """

    def __init__(self, link: NetworkSocket, server_key: Path, limits: Limits, changed: Callable[[], None]) -> None:
        self.revoked: deque[str] = deque()
        self._link = link
        self._changed = changed
        self._allowed = AllowList(server_key)
        self._users: dict[str, str] = {}
        self._connections = Connections(limits)
        self.note_user: Final = self._connections.note_user
        self._named: set[tuple[str, str]] = set()
        self._failure: str | None = None
        self._check_at = 0.0
        self._wake = Wake()
        self._ending = False
        self._zap = link.context.socket(zmq.REP)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(_ZAP)
        self._monitor = link.monitor(_EVENTS)
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin, after the socket was bound."""
        self._read_events()  # where it listens is the first of them
        self._thread = start_thread("gpusched-authenticator", self._run)

    def lets_in(self, user: str) -> bool:
        """Return whether that key is good now. For any thread."""
        return user in self._users

    def close(self) -> None:
        """End the thread; before the link is closed."""
        self._ending = True
        self._wake.set()
        if self._thread is None:
            self._shut()
        else:
            self._thread.join(_THREAD_ENDS_S)
        if self._thread is None or not self._thread.is_alive():
            self._wake.close()

    # The thread

    def _run(self) -> None:
        try:
            poller = zmq.Poller()
            for each in (self._monitor, self._zap, self._wake.descriptor):
                poller.register(each, zmq.POLLIN)
            while not self._ending:
                ready = dict(poller.poll(math.ceil(1000 * max(0.0, self._check_at - time.monotonic()))))
                if self._wake.descriptor in ready:
                    self._wake.clear()
                if self._monitor in ready or self._zap in ready:  # first: the peers asked about must be known by then
                    self._read_events()
                if self._zap in ready:
                    self._answer()
                if time.monotonic() >= self._check_at:
                    self._check()
        except Exception:  # noqa: BLE001 (whatever it is, no peer may come in then)
            log.exception("no peer comes in from the network any more: the authenticator's thread ended")
            self._connections.shut_all()
        finally:
            self._shut()

    def _shut(self) -> None:
        self._users = {}
        self._connections.close()
        self._link.monitor_no_more()  # first: libzmq would wait for a reader of its events
        self._monitor.close(0)
        self._zap.close(0)

    def _answer(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._zap.recv_multipart()
        public = z85.encode(credentials[0]).decode() if mechanism == _CURVE and credentials else ""
        where = address.decode(errors="replace").removeprefix("::ffff:").partition("%")[0]
        name = self._allowed.name_of(public)
        if name is None:
            self._turn_away(where, self._allowed.why_not(public))
            self._zap.send_multipart([version, request, b"400", b"not let in", b"", b""])
        else:
            self._users[public] = name
            self._zap.send_multipart([version, request, b"200", b"OK", public.encode(), b""])

    def _read_events(self) -> None:
        for _ in range(_MANY):
            try:
                event, value = read_event(self._monitor)
            except zmq.Again:
                return
            self._handle_event(event, value)

    def _handle_event(self, event: int, value: int) -> None:
        """Note one event. A handshake's failure does not name the peer; the end of that connection follows at once."""
        if event == zmq.EVENT_LISTENING:
            self._connections.freeze(value)
        elif event == zmq.EVENT_ACCEPTED:
            now = time.monotonic()
            gone = self._connections.accepted(value, now)
            if gone is not None:
                self._turn_away(gone[0].address, gone[1])
            self._check_at = min(self._check_at, now + _CHECK_OFTEN_S)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._failure = ""  # logged already, when its key was asked about
        elif event in _FAILED:
            # One without a key gives up by itself, too: which of both ends it first is chance, and so is the event.
            self._failure = "its key is for another learner" if value == _OTHERS_KEY else "it showed no key"
        elif event == zmq.EVENT_DISCONNECTED:
            ended, why, self._failure = self._connections.ended(value), self._failure, None
            if why and (ended is None or not ended.shut):
                self._turn_away("an unknown address (it left at once)" if ended is None else ended.address, why)

    def _turn_away(self, address: str, why: str) -> None:
        """Log once which peer was turned away for what: a reason must hold no number that is another one each time."""
        if (address, why) in self._named:
            return
        if len(self._named) >= _MOST_NAMED:
            self._named.clear()
        self._named.add((address, why))
        log.warning("turned away %s: %s", address, why)

    def _check(self) -> None:
        """See to the keys that were revoked and to the connections that go too far."""
        revoked = [(user, name) for user, name in self._users.items() if self._allowed.name_of(user) is None]
        for user, _ in revoked:
            del self._users[user]
        self._connections.shut_others(self._users)  # at each check: whose it is may show after the key was revoked
        for user, name in revoked:
            self.revoked.append(user)
            self._changed()
            log.warning("cut the connections with the key %r: %s", name, self._allowed.why_not(user))
        now = time.monotonic()
        for connection, why in self._connections.check(now):
            self._turn_away(connection.address, why)
        some = len(self._connections)
        self._check_at = now + (max(_CHECK_OFTEN_S, some * _A_CONNECTION_S) if some else _CHECK_S)
