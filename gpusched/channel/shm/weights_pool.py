"""Memory for weights, one copy for all actors on the host, filled again when no actor uses what was in it.

Fresh memory for each version would cost more than the copy: the kernel clears it, and every process maps it, faults it
in and gives it back. So each actor reports the versions that it has let go, and a segment that all have let go serves
again. Whatever is not sure is not used again: an actor that left without a message may still read, and what it sees
must stay. It must not know sockets; both classes are called with their loop's lock held.
"""

import functools
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
import numpy as np

from gpusched.channel.framing import split
from gpusched.channel.messages import MAX_RETURNED, ArraySpec, Segment, WeightsHeader, encode_header
from gpusched.channel.shm.lending import Owner
from gpusched.channel.shm.segment import WeightsSegment, map_segment
from gpusched.channel.transport import Part
from gpusched.channel.values import Array

__all__ = ["Published", "Views", "WeightsSegmentPool", "most_offers"]

_MOST_OFFERS: Final = 8
_MOST_OFFERED: Final = 32 << 20
_FEWEST_KEPT, _MOST_KEPT = 4, 12
_LARGEST_KEPT: Final = 64 << 20


def most_offers(size: int) -> int:
    """Return how many segments of `size` bytes may be offered to an actor that has answered none of them; one at least.

    Both sides use it: the actor answers when half of them have come, or with what it sends anyway.
    """
    return max(1, min(_MOST_OFFERS, _MOST_OFFERED // size))


def _most_kept(size: int) -> int:
    """Return how many segments of `size` bytes either side keeps for the next versions: of large ones none.

    Fewer than four would never be free in time: the newest, the one before, that all still use, the one before
    that, which the learner gets back with the next answer only, and what an actor is late by.
    """
    return max(_FEWEST_KEPT, min(_MOST_KEPT, _LARGEST_KEPT // size)) if size <= _LARGEST_KEPT else 0


class Published(msgspec.Struct, dict=True, eq=False):
    """One version of the weights, which does not change as long as it is the newest, or an actor uses it.

    It leaves the learner in two forms: as a segment for this host, or as frames.
    """

    version: int
    specs: tuple[ArraySpec, ...]
    segment: WeightsSegment | None
    copied: list[Part]
    """The frames, where there is no segment to make them of."""
    frames_of: Callable[[Sequence[Array]], list[Part]]

    @functools.cached_property
    def offer(self) -> bytes | None:
        """What names the segment to an actor on this host, the same for all; None without one."""
        if self.segment is None:
            return None
        return encode_header(WeightsHeader(self.version, self.specs, self.segment.segment))

    @functools.cached_property
    def frames(self) -> list[Part]:
        """The arrays as frames, made when the first actor needs them; all share them."""
        return self.copied if self.segment is None else self.frames_of(split(self.specs, self.segment.block))


class WeightsSegmentPool:
    """The learner's segments of one size, the newest weights among them, and which actor may read which."""

    def __init__(self) -> None:
        self._lent: dict[WeightsSegment, set[tuple[Owner, int]]] = {}
        self._newest: WeightsSegment | None = None

    def take(self, size: int) -> WeightsSegment | None:
        """Return one of `size` bytes that no actor uses; it is the caller's until put(). None if there is none."""
        for segment, readers in self._lent.items():
            if segment.segment.size == size and not readers and segment is not self._newest:
                del self._lent[segment]
                return segment
        return None

    def put(self, segment: WeightsSegment) -> None:
        """Take in the segment of the newest weights; those of another size, and the oldest of too many, go."""
        self._newest, size = segment, segment.segment.size
        for other in [other for other in self._lent if other.segment.size != size]:
            del self._lent[other]
        while self._lent and len(self._lent) >= _most_kept(size):
            del self._lent[next(iter(self._lent))]
        if _most_kept(size):
            self._lent[segment] = set()

    def lend(self, segment: WeightsSegment, version: int, owner: Owner) -> None:
        """Note that this process is offered the segment, as that of `version`."""
        if segment in self._lent:
            self._lent[segment].add((owner, version))

    def give_back(self, owner: Owner, versions: Collection[int]) -> None:
        """Note that this process uses these versions no more."""
        for readers in self._lent.values():
            readers.difference_update((owner, version) for version in versions)

    def retire(self, owner: Owner) -> None:
        """Use nothing again that this process was offered: what it reports of it from now on does not matter."""
        self._drop({owner})

    def retire_all_but(self, owners: Collection[Owner]) -> None:
        """Use nothing again that others than these were offered."""
        self._drop({owner for readers in self._lent.values() for owner, _ in readers} - set(owners))

    def clear(self) -> None:
        """Forget all; their memory goes with the last process that maps it."""
        self._lent.clear()
        self._newest = None

    def _drop(self, owners: Collection[Owner]) -> None:
        for segment in [each for each, readers in self._lent.items() if any(one in owners for one, _ in readers)]:
            del self._lent[segment]


class Views:
    """An actor's mappings of its learner's segments, kept because later versions come in the same ones."""

    def __init__(self) -> None:
        self._mapped: dict[Segment, tuple[mmap.mmap, int]] = {}
        self._takes = 0
        self._in_use: dict[int, tuple[weakref.ref[Array], int]] = {}
        self._left: deque[weakref.ref[Array]] = deque()  # appended to as the last array is freed, in any thread
        self._released: list[int] = []
        _ALL.add(self)

    def take(self, segment: Segment, version: int) -> Array:
        """Return the bytes of `segment`, read-only, to view the arrays of `version` on. Raises ProtocolError."""
        known = self._mapped.pop(segment, None)
        memory = map_segment(segment, writable=False) if known is None else known[0]
        self._takes += 1
        self._mapped[segment] = memory, self._takes
        self._drop_mappings(segment.size)
        block: Array = np.frombuffer(memory, np.uint8)
        reference = weakref.ref(block, self._left.append)
        self._in_use[id(reference)] = reference, version
        return block

    def unused(self) -> tuple[int, ...]:
        """Return versions of which no array is left; the same and more until acknowledged() is called."""
        while self._left and len(self._released) < MAX_RETURNED:
            _, version = self._in_use.pop(id(self._left.popleft()), (None, None))
            if version is not None and all(version != other for _, other in self._in_use.values()):
                self._released.append(version)
        return tuple(self._released)

    def acknowledged(self) -> None:
        """Forget what unused() returned last: the learner has got it."""
        self._released.clear()

    def begin(self, *, same: bool) -> None:
        """Begin with a learner that counts on nothing from before; `same`: its segments may still come."""
        if not same:
            self._mapped.clear()
        self.keep_for_good()
        self._released.clear()

    def keep_for_good(self) -> None:
        """Let what is in use now stay as it is for ever."""
        self._in_use.clear()

    def _drop_mappings(self, size: int) -> None:
        """Forget what will not come again: other sizes, too many, and what did not come for long."""
        kept, since = _most_kept(size), self._takes - 2 * _MOST_KEPT
        for number, (segment, (_, taken)) in enumerate(reversed(list(self._mapped.items()))):
            if number >= kept or taken <= since or segment.size != size:
                del self._mapped[segment]


_ALL: Final[weakref.WeakSet[Views]] = weakref.WeakSet()


def _before_fork() -> None:
    """Let the child keep what it inherits: it cannot report when that lets go."""
    for views in _ALL:
        views.keep_for_good()


os.register_at_fork(before=_before_fork)
