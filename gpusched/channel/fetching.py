"""An actor's weights: those that it has, those that there are, and when it asks for them, or answers an offer.

It must not know sockets; called with its loop's lock held.
"""

import math
from typing import Final

import msgspec

from gpusched.channel.framing import extent, unpack_arrays, unpack_block
from gpusched.channel.messages import GetWeights, GotWeights, Segment, WeightsHeader
from gpusched.channel.shm.weights_pool import Views, most_offers
from gpusched.channel.values import Array, Weights
from gpusched.errors import ProtocolError

__all__ = ["Fetching"]


class Fetching:
    """What one actor knows of weights. `longest`: bytes that a set may have.

    `have`: the version that is here, 0 for none. `waited_for`: how many calls of the application wait for newer ones.
    With none, the next are fetched, over a socket, halfway to when it is likely to take some again. A learner may
    publish for every batch, and an actor uses one version for each of its own: to fetch all of them would take more of
    both hosts, and of what is between, than the batches.
    """

    def __init__(self, longest: int) -> None:
        self.weights: Weights | None = None
        self.have = 0
        self.learner = ""
        self.waited_for = 0
        self._longest: Final = longest
        self._newest = 0
        self._asked = False
        self._took_at = self._fetch_at = -math.inf
        self._views = Views()
        self._got: GotWeights | None = None
        self._unanswered, self._answer_after = 0, 1

    def begin(self, newest: int, *, same: bool) -> None:
        """Begin with a learner that has version `newest`; `same`: it is the one from before."""
        self._newest, self._asked, self._fetch_at = newest, False, -math.inf
        self._got, self._unanswered = None, 0
        self._views.begin(same=same)

    def note_version(self, version: int) -> None:
        """Note that there are weights of this version."""
        self._newest = max(self._newest, version)

    def taken(self, now: float) -> None:
        """Note that the application has taken what is here."""
        self._fetch_at = now + (now - self._took_at) / 2 if math.isfinite(self._took_at) else now
        self._took_at = now

    def due(self) -> float:
        """Return when to ask for the newest: a time of time.monotonic(), or never."""
        if self._asked or self._newest <= self.have:
            return math.inf
        return -math.inf if self.waited_for else self._fetch_at

    def request(self) -> GetWeights:
        """Return how to ask."""
        return GetWeights(self.have)

    def requested(self) -> None:
        """Note that it was asked: not again before an answer, and before the application has taken that."""
        self._asked, self._fetch_at = True, math.inf

    def ask_again(self) -> None:
        """Forget that it was asked."""
        self._asked = False

    def receive(self, header: WeightsHeader, frames: list[memoryview], learner: str) -> None:
        """Take in what came of this learner, as frames or as the offer of a segment. Raises ProtocolError."""
        self.ask_again()
        arrays = self._unpack(header, frames) if header.segment is None else self._map(header, header.segment)
        if self.weights is None or header.version > self.weights.version:
            self.weights, self.learner = Weights(version=header.version, arrays=arrays), learner
            self.have = header.version
            self.note_version(header.version)

    @property
    def owes(self) -> bool:
        """Whether there are offers to answer."""
        return self._got is not None

    def answer(self, *, speaking: bool) -> GotWeights | None:
        """Return the answer to the offers that came, None for nothing now; `speaking`: a message goes out anyway."""
        got = self._got
        if got is None or (got.opened and not speaking and self._unanswered < self._answer_after):
            return None
        return msgspec.structs.replace(got, freed=self._views.unused())

    def answered(self) -> None:
        """Note that the learner was sent what answer() returned last."""
        self._views.acknowledged()
        self._got, self._unanswered = None, 0

    def _unpack(self, header: WeightsHeader, frames: list[memoryview]) -> dict[str, Array]:
        arrays = unpack_arrays(header.arrays, frames, self._longest)
        for array in arrays.values():
            array.flags.writeable = False
        return arrays

    def _map(self, header: WeightsHeader, segment: Segment) -> dict[str, Array]:
        self._got = GotWeights(header.version, opened=False)
        if segment.size != extent(header.arrays):
            raise ProtocolError(f"weights of {extent(header.arrays)} bytes in a segment of {segment.size}")
        arrays = unpack_block(header.arrays, self._views.take(segment, header.version), self._longest)
        self._got = GotWeights(header.version, opened=True)
        self._unanswered, self._answer_after = self._unanswered + 1, (most_offers(segment.size) + 1) // 2
        return arrays
