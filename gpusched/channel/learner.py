"""The learner's side of the channel, as an application sees it: weights in, batches out.

It owns the calls and their promises; the work is its thread's (learner_thread.py).
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from gpusched import runtime
from gpusched.channel.endpoint import Claim, where_to_bind
from gpusched.channel.framing import pack_arrays
from gpusched.channel.learner_thread import LearnerThread
from gpusched.channel.local import LocalServer
from gpusched.channel.messages import AnswerHeader, check_arrays
from gpusched.channel.remote.hosts import Hosts
from gpusched.channel.transport import Transport, start_thread
from gpusched.channel.values import ActorStatus, Array, Batch, Limits
from gpusched.errors import ChannelError, NotLaunched, UsageError
from gpusched.joining.keys import read_server_key

if TYPE_CHECKING:
    from gpusched.channel.remote.authentication import ZapAuthenticator

__all__ = ["Learner", "launched_replica"]

_THREAD_ENDS_S: Final = 5.0


def launched_replica(side: str) -> runtime.ReplicaIdentity:
    """Return the identity of this process in its launch. Raises NotLaunched, with what to do, outside a launch."""
    try:
        return runtime.current_replica()
    except NotLaunched as error:
        raise NotLaunched(
            error.message,
            f"start it with `gpusched launch WORKLOAD`, or give an endpoint: {side}('ipc:///run/user/1000/mine.sock')",
        ) from None


class Learner:
    """Binds `endpoint`, by default this launch's; ready for actors when the constructor returns.

    `listen`: a tcp endpoint beside an ipc one, for actors on other hosts; by default this launch's, if it has one.
    `keys`: this learner's key file (joining/keys.py), beside the list of those that it lets in; what goes over tcp is
    encrypted then, and without it tcp stays on this host. Raises NotLaunched without an endpoint outside a launch;
    ChannelError when another learner is there; UsageError for an endpoint or a key that cannot be, NotFound without the
    key file.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        listen: str | None = None,
        keys: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        run_dir, incarnation = None, 0
        if endpoint is None:
            me = launched_replica("Learner")
            endpoint, listen, keys, run_dir = me.endpoint, listen or me.listen, keys or me.keys, me.run_dir
            incarnation = me.incarnation
        path, network = where_to_bind(endpoint, listen, secured=keys is not None)
        self._limits = limits or Limits()
        self._closed = False
        self._stopped = False
        self._ready = False
        self._process = os.getpid()
        self._listening: str | None = None
        self._claim = None if path is None else Claim(path)
        self._authenticator: ZapAuthenticator | None = None
        self._link = Transport()
        try:
            if path is not None and self._claim is not None:
                self._link.add(LocalServer(path, self._limits))
                self._claim.secure()
            if network is not None:
                self._listening = self._listen(network, keys)
        except BaseException:
            self._give_back()
            raise
        self._endpoint = endpoint if path is not None else self._listening or endpoint
        hosts = Hosts(run_dir, keyless=network is not None and keys is None, has_nodes=incarnation > 0)
        self._loop = LearnerThread(self._link, self._limits, hosts, self._authenticator)
        self._thread = start_thread("gpusched-learner", self._loop.run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        over = kind is None or (isinstance(error, SystemExit) and not error.code)
        self.close(over=over)

    @property
    def endpoint(self) -> str:
        """Where actors connect; for `tcp://127.0.0.1:0` with the port that was found."""
        return self._endpoint

    @property
    def listening(self) -> str | None:
        """Where actors on other hosts connect, None if they cannot."""
        return self._listening

    @property
    def version(self) -> int:
        """The version of the newest weights, 0 before the first."""
        return self._loop.version

    @property
    def actors(self) -> tuple[ActorStatus, ...]:
        """All actors that ever sent Hello to this learner, in that order."""
        return self._loop.status()

    @property
    def dropped(self) -> dict[str, int]:
        """How many messages were dropped, by kind.

        header, arrays, credit, segment, protocol, replaced, full; from the network also identity, revoked, uninvited.
        Where a cluster starts actors again: fenced, those of a former incarnation; past, what these had sent.
        """
        return dict(self._loop.dropped)

    def publish(self, weights: Mapping[str, Array]) -> int:
        """Give new weights to all actors, and return their version, from 1. Never waits for an actor.

        The arrays are copied once, here: they may be changed when this returns. Actors get the newest, not each one.
        After a restart the version is raised above those of the former learner when its actors come back, so
        `version` may then be more than what was returned here. Raises UsageError for arrays that cannot travel.
        """
        self._check()
        specs, arrays = pack_arrays(weights, self._limits.max_message)
        check_arrays(specs)
        version = self._loop.publish(specs, arrays)
        if not self._ready:
            self._ready = True
            runtime.report_ready()
        return version

    def get(self, timeout: float | None = None) -> Batch | None:
        """Return the next batch, first come first served. None: `timeout` seconds passed, or stop() was called.

        This call is what gives the batch's actor leave to send another. Raises ChannelError when the channel failed.
        """
        self._check()
        end = None if timeout is None else time.monotonic() + timeout
        while not self._stopped:
            try:
                waiting = self._loop.next(end)
            except Empty:
                return None
            if waiting is None:  # stop() or a failure: for every other thread in get() too
                self._loop.stop()
                if self._loop.failure is not None:
                    raise self._loop.failure
                break
            batch = waiting.batch
            if batch is not None:
                self._loop.take(waiting, asks=batch.asks)
                return batch
        return None

    def answer(self, batch: Batch, arrays: Mapping[str, Array]) -> None:
        """Answer a batch that asks. Never waits for the actor; if it is gone, nothing is sent.

        The arrays are copied once, here: they may be changed when this returns. Only the first answer to a batch
        counts. Raises UsageError for a batch that does not ask and for arrays that cannot travel.
        """
        self._check()
        if not batch.asks:
            raise UsageError(f"batch {batch.seq} of {batch.actor} does not ask", "answer only batches with asks=True")
        specs, ready = pack_arrays(arrays, self._limits.max_message)
        check_arrays(specs)
        self._loop.answer(batch, AnswerHeader(batch.seq, specs), self._link.frames_of(ready))

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches until stop()."""
        while (batch := self.get()) is not None:
            yield batch

    def stop(self) -> None:
        """End the iteration and every get(), now and later. Safe in a signal handler and from any thread."""
        self._stopped = True
        self._loop.stop()

    def close(self, *, over: bool = True) -> None:
        """Stop, and give everything back. `over`: end the job for the actors, so that they end too.

        Leaving the `with` block by an error closes with over=False: actors then wait for the next learner.
        A process that was forked off does nothing here: all of it is its parent's.
        """
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self.stop()
        self._loop.end(over=over)
        self._thread.join(_THREAD_ENDS_S)
        if not self._thread.is_alive():  # else it still uses the socket: after a SIGSTOP the time may be up at once
            if self._authenticator is not None:
                self._authenticator.close()
            self._loop.close_link()
        if self._claim is not None:
            self._claim.release()

    def _listen(self, endpoint: str, keys: Path | None) -> str:
        from gpusched.channel.network import NetworkSocket  # zmq takes 15 ms, which a job on one host need not spend
        from gpusched.channel.remote.authentication import ZapAuthenticator

        key = None if keys is None else read_server_key(keys)
        network = NetworkSocket(self._limits, serves=True)
        self._link.add(network)
        if keys is not None:
            self._authenticator = ZapAuthenticator(network, keys, self._limits, self._link.wake.set)
        listening = network.listen(endpoint, key)
        if self._authenticator is not None:
            self._authenticator.open()
        return listening

    def _give_back(self) -> None:
        """Undo what a constructor that fails has done."""
        if self._authenticator is not None:
            self._authenticator.close()
        self._link.close()
        if self._claim is not None:
            self._claim.release()

    def _check(self) -> None:
        if self._loop.failure is not None:
            raise self._loop.failure
        if self._closed:
            raise ChannelError("this Learner is closed", "make a new one")
        if os.getpid() != self._process:
            raise ChannelError("this Learner was made before a fork", "make it in the process that uses it")
