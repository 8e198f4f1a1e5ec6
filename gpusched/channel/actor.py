"""The actor's side of the channel, as an application sees it: weights out, batches in.

It owns the calls and their promises; the work is its thread's (actor_thread.py).
"""

import os
import re
import socket as sockets
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Self, overload

from gpusched import runtime
from gpusched.channel.actor_protocol import Outgoing, Question
from gpusched.channel.actor_thread import ActorThread
from gpusched.channel.endpoint import check_endpoint
from gpusched.channel.framing import extent, pack_arrays, plain_meta
from gpusched.channel.learner import launched_replica
from gpusched.channel.local import LocalClient
from gpusched.channel.messages import (
    MAX_NUMBER,
    PROTOCOL,
    WIDEST_SEGMENT,
    BatchHeader,
    Hello,
    check_arrays,
    check_header,
)
from gpusched.channel.shm.segment import SMALLEST
from gpusched.channel.transport import ClientSocket, start_thread
from gpusched.channel.values import Array, Limits, Speaker, Weights
from gpusched.errors import ChannelError, NotLaunched, UsageError
from gpusched.joining.keys import JoinKey, read_join_key

__all__ = ["Actor", "Answer"]

_FLUSH_S: Final = 2.0
_THREAD_ENDS_S: Final = 5.0
_PATIENCE_S: Final = 900.0
_NOT_IN_A_HOSTS_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Actor:
    """Connects to `endpoint`, by default this launch's, now or as soon as a learner is there; it outlives learners.

    `name`: by default this replica's, and `actor-PID` outside a launch; of two living processes with one name the later
    one counts. `keys`: the key file of a joining host, for a tcp endpoint, by default this launch's; the name then has
    its host, `actor.0@HOST`, but for nodes of one launch. One thread calls weights() and send(); any may call
    close(). Raises NotLaunched without an endpoint outside a launch; UsageError for an endpoint or a key that cannot
    be, NotFound without the key file.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        keys: Path | None = None,
        name: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        if endpoint is None:
            me = launched_replica("Actor")
            endpoint, keys = me.endpoint, keys or me.keys
        path = check_endpoint(endpoint, secured=keys is not None)
        key = read_join_key(keys) if keys is not None and path is None else None
        speaker = _speaker(name, key, elsewhere=path is None)
        self.name: Final = speaker.name
        _check_name(self.name)
        self._process = os.getpid()
        self._closed = False
        self._playing = 0
        self._limits = limits or Limits()
        socket = LocalClient(path, self._limits) if path is not None else _connected(endpoint, key, self._limits)
        self._loop = ActorThread(socket, speaker, self._limits)
        self._call = _Call(self._loop)
        self._thread = start_thread("gpusched-actor", self._loop.run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """Whether a message of the learner came lately (Limits.silence_s)."""
        with self._loop.changed:
            return time.monotonic() - self._loop.received_at <= self._limits.silence_s

    @overload
    def weights(self, newer_than: int | None = None) -> Weights: ...
    @overload
    def weights(self, newer_than: int | None = None, *, timeout: float | None) -> Weights | None: ...
    def weights(self, newer_than: int | None = None, *, timeout: float | None = None) -> Weights | None:
        """Return the newest weights that came, at once; wait only for the first, or for a version over `newer_than`.

        None only when `timeout` seconds passed. Raises LearnerGone when the job is over, ChannelError when the learner
        refused this actor.
        """

        def there() -> bool:
            has = self._loop.fetching.weights
            return has is not None and (newer_than is None or has.version > newer_than)

        with self._call, nullcontext() if there() else self._loop.hurry():
            if not self._wait(there, timeout):
                return None
            weights = self._loop.fetching.weights
            self._loop.took_weights()
        if weights is not None:
            self._playing = weights.version
        return weights

    def send(
        self,
        arrays: Mapping[str, Array],
        *,
        version: int | None = None,
        meta: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Send a batch; wait while the learner's application has not taken enough of the former ones (two).

        The arrays are copied once, here: they may be changed when this returns. `version`: the weights they were made
        with, by default those that weights() returned last. `meta`: numbers and short texts. A batch is used once or,
        when the learner dies, not at all. False only when `timeout` seconds passed: nothing was sent then.
        Raises LearnerGone when the job is over, UsageError for what cannot travel.
        """
        outgoing = self._pack(arrays, self._playing if version is None else version, meta)
        return self._hand_over(outgoing, timeout)

    def ask(
        self, arrays: Mapping[str, Array], *, meta: Mapping[str, object] | None = None, timeout: float | None = None
    ) -> "Answer | None":
        """Send a batch that the learner is to answer, and return where the answer will be. Several may be out.

        It waits, and counts, as send() does. None only when `timeout` seconds passed: nothing was sent then.
        Raises LearnerGone when the job is over, UsageError for what cannot travel.
        """
        outgoing = self._pack(arrays, self._playing, meta, asks=True)
        question = Question()
        return Answer(self, question) if self._hand_over(outgoing, timeout, question) else None

    def close(self) -> None:
        """Send what is waiting, for two seconds at the most, take leave, and give everything back.

        A process that was forked off does nothing here: all of it is its parent's.
        """
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        with self._loop.changed:
            self._loop.closing_at = time.monotonic() + _FLUSH_S
            self._loop.notify()
        self._loop.wake.set()
        self._thread.join(_THREAD_ENDS_S)
        if not self._thread.is_alive():  # else it still uses the socket: after a SIGSTOP the time may be up at once
            with self._loop.changed:
                self._loop.close_link()

    def _pack(
        self, arrays: Mapping[str, Array], version: int, meta: Mapping[str, object] | None, *, asks: bool = False
    ) -> Outgoing:
        specs, ready = pack_arrays(arrays, self._loop.max_message)
        plain = plain_meta(meta) if meta else {}
        check_arrays(specs)
        if plain or version is not self._playing:
            check_header(BatchHeader(MAX_NUMBER, version, specs, plain, asks, WIDEST_SEGMENT))
        size = extent(specs)
        segment = None
        if size >= SMALLEST:
            with self._call:
                segment = self._loop.room(size)
        if segment is not None:
            segment.write(specs, ready)
        frames = self._loop.frames_of(ready) if segment is None else []
        return Outgoing(version=version, arrays=specs, meta=plain, asks=asks, segment=segment, frames=frames)

    def _hand_over(self, outgoing: Outgoing, timeout: float | None, question: Question | None = None) -> bool:
        with self._call:
            try:
                if not self._wait(self._may_send, timeout):
                    return False
                self._loop.post(outgoing, question)
            finally:
                if outgoing.segment is not None and outgoing.seq == 0:
                    self._loop.lent.put_back(outgoing.segment)
        return True

    def _answered(self, question: Question, timeout: float | None) -> dict[str, Array] | None:
        if question.over:  # it came before the job was over
            return question.arrays
        with self._call:
            self._wait(lambda: question.over, timeout)
        return question.arrays

    def _may_send(self) -> bool:
        return len(self._loop.in_flight) + len(self._loop.outbox) < self._loop.credits

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        loop = self._loop
        over = loop.gone is not None or self._closed or ready()
        if not over:
            over = loop.wait(lambda: loop.gone is not None or self._closed or ready(), timeout)
        if loop.gone is not None:
            raise loop.gone
        if self._closed:
            raise ChannelError("this Actor is closed", "make a new one")
        return over


class _Call:
    """Hold the condition, and let the learner see that the application is in a call."""

    def __init__(self, loop: ActorThread) -> None:
        self._loop = loop
        self._process = os.getpid()

    def __enter__(self) -> None:
        if os.getpid() != self._process:
            raise ChannelError("this Actor was made before a fork", "make it in the process that uses it")
        self._loop.changed.acquire()
        self._loop.calls += 1
        self._loop.inside = True

    def __exit__(self, *_: object) -> None:
        self._loop.inside = False
        self._loop.changed.release()


class Answer:
    """Where the answer to one Actor.ask() will be. Dropped unread, it costs nothing."""

    def __init__(self, actor: Actor, question: Question) -> None:
        self._actor = actor
        self._question = question

    def wait(self, timeout: float | None = None) -> dict[str, Array] | None:
        """Return the answer's arrays, writable, when they are there; call it as often as you like.

        None when `timeout` seconds passed, or when no answer will come: the learner that was asked, or the connection
        to it, is gone. Then ask again. Raises LearnerGone when the job is over, ChannelError when the actor is closed.
        """
        return self._actor._answered(self._question, timeout)  # noqa: SLF001 (one module's two halves)

    @property
    def over(self) -> bool:
        """Whether wait() would return at once: the answer is there, or none will come."""
        return self._question.over


def _connected(endpoint: str, key: JoinKey | None, limits: Limits) -> ClientSocket:
    from gpusched.channel.network import NetworkSocket

    socket = NetworkSocket(limits, serves=False)
    try:
        socket.connect(endpoint, key)
    except UsageError:
        socket.close()
        raise
    return socket


def _speaker(name: str | None, key: JoinKey | None, *, elsewhere: bool) -> Speaker:
    """Return what this process is to a learner on this host, or `elsewhere`.

    To one elsewhere its name has its host's with it, if it has a key or its host joined; but not on the nodes of a
    cluster: their names are those of one launch already. As a cluster starts all at once, it waits there for the first
    message for longer; who joined has met the learner already.
    """
    patience: float | None = None
    try:
        me = runtime.current_replica()
    except NotLaunched:
        own, attempt, incarnation, host = f"actor-{os.getpid()}", 0, 0, ""
    else:
        own, attempt, incarnation, host = me.name, me.attempt, me.incarnation, me.joined
        patience = (me.patience_s or _PATIENCE_S) if me.elsewhere else None
    name = name or own
    if elsewhere and (host or key) and "@" not in name and not incarnation:
        name += f"@{host or _NOT_IN_A_HOSTS_NAME.sub('-', sockets.gethostname()).strip('-._')[:32] or 'host'}"
    first = max(patience, _PATIENCE_S) if patience and incarnation else patience
    return Speaker(name, attempt, incarnation, elsewhere, key.name if key else None, patience, first)


def _check_name(name: str) -> None:
    try:
        check_header(Hello(PROTOCOL, name, 0, "", 0, "", 0, ""))
    except UsageError:
        raise UsageError(
            f"{name!r} cannot be an actor's name", "use at most 64 letters, digits, and . _ : -, a letter first"
        ) from None
