"""Whose turn it is with a segment: the actor's side lends them with batches, the learner's side gives them back.

A segment belongs to one batch from the moment the actor takes it until the last array on it is freed in the learner. It
must not know sockets; both classes are called with their loop's lock held, unless noted otherwise.
"""

import mmap
import resource
import weakref
from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np

from gpusched.channel.messages import Segment
from gpusched.channel.shm.segment import ReusableSegment, map_segment
from gpusched.channel.values import Array
from gpusched.errors import ProtocolError

__all__ = ["Owner", "SegmentMap", "SegmentPool"]

_MOST_SEGMENTS: Final = 16
_MOST_BYTES: Final = 256 << 20
"""What one actor shares at the most, in all its segments: the learner holds every actor to it."""
_SPARE: Final = 4  # beside those in flight: one being filled, one in use, and those that are not reported yet

Owner = tuple[str, str]
"""A process of an actor: name and nonce."""


def _rounded(size: int) -> int:
    """Return what a segment for `size` bytes should have, so that batches of about one size find room in it."""
    step = max(mmap.PAGESIZE, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step


class SegmentPool:
    """An actor's segments: the free ones, and those that go with a batch.

    One that was taken is its taker's: if that loses it, as by an error in a signal's handler, it counts no more.
    """

    def __init__(self, in_flight: int) -> None:
        self._most = min(in_flight + _SPARE, _MOST_SEGMENTS)
        self._free: list[ReusableSegment] = []
        self._lent: dict[int, ReusableSegment] = {}
        self._all: weakref.WeakSet[ReusableSegment] = weakref.WeakSet()

    def take(self, size: int) -> ReusableSegment | None:
        """Return a segment with room for `size` bytes, the one used last first. None: all are lent, or no memory."""
        for index in range(len(self._free) - 1, -1, -1):
            if self._free[index].segment.size >= size:
                return self._free.pop(index)
        while self._free and not self._has_room(size):  # too small for what is sent now
            self._drop(self._free.pop(0))
        if not self._has_room(size):
            return None
        try:
            made = ReusableSegment(_rounded(size))
        except OSError:
            return None
        self._all.add(made)
        return made

    def lend(self, segment: ReusableSegment, seq: int) -> None:
        """Let this segment, which was taken, go with batch `seq`."""
        self._lent[seq] = segment

    def put_back(self, segment: ReusableSegment) -> None:
        """Give back one that was taken and not lent."""
        self._free.append(segment)

    def free(self, seq: int) -> None:
        """Note that the learner needs what came with batch `seq` no longer; noted twice, it counts once."""
        segment = self._lent.pop(seq, None)
        if segment is not None:
            self._free.append(segment)

    def keep_only(self, seqs: Collection[int]) -> None:
        """Take back what is lent with other batches than these."""
        for seq in self._lent.keys() - set(seqs):
            self.free(seq)

    def close(self) -> None:
        """Close all descriptors; what the learner has mapped stays its own."""
        for segment in (*self._free, *self._lent.values()):
            self._drop(segment)
        self._free.clear()
        self._lent.clear()

    def _has_room(self, size: int) -> bool:
        total = sum(segment.segment.size for segment in self._all)
        return len(self._all) < self._most and total + size * 5 // 4 + mmap.PAGESIZE <= _MOST_BYTES  # sizes are rounded

    def _drop(self, segment: ReusableSegment) -> None:
        self._all.discard(segment)
        segment.close()


class _Mapping(msgspec.Struct, eq=False):
    """An actor's segment here. `seq`: the batch whose arrays lie in it, None for none. `used`: notices their end."""

    owner: Owner
    segment: Segment
    memory: mmap.mmap
    seq: int | None = None
    used: weakref.ref[Array] | None = None


class SegmentMap:
    """The actors' segments that the learner has mapped. Memory and number are bounded for each and for all together."""

    def __init__(self) -> None:
        self._of: dict[Owner, dict[int, _Mapping]] = {}
        self._count = 0
        self._most = max(_MOST_SEGMENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._unused: deque[_Mapping] = deque()  # appended to by the thread that frees the last array, at any time
        self._ready: list[tuple[Owner, int]] = []

    def take(self, owner: Owner, segment: Segment, seq: int) -> Array:
        """Return the bytes of `segment` for batch `seq`, to view arrays on; it is in use until the last view is freed.

        Raises ProtocolError if it cannot be mapped, is in use, or is more than an actor may share.
        """
        mapping = self._of.get(owner, {}).get(segment.inode)
        if mapping is None:
            mapping = self._map(owner, segment)
        if mapping.segment != segment:
            raise ProtocolError("a segment is not what it was")
        if mapping.seq is not None:
            self._gather()
        if mapping.seq is not None:
            raise ProtocolError("a segment came again while its arrays are in use")
        block: Array = np.frombuffer(mapping.memory, np.uint8)
        unused, mapping.seq = self._unused, seq
        mapping.used = weakref.ref(block, lambda _: unused.append(mapping))
        return block

    def collect(self) -> list[tuple[Owner, int]]:
        """Return the batches whose arrays were freed since the last call; their segments are ready for others."""
        self._gather()
        ready, self._ready = self._ready, []
        return ready

    def in_use(self, owner: Owner) -> tuple[int, ...]:
        """Return the batches of this process whose arrays were not collected yet."""
        mappings = self._of.get(owner, {}).values()
        return tuple(mapping.seq for mapping in mappings if mapping.seq is not None)

    def trim(self, owners: Collection[Owner]) -> None:
        """Unmap what none of these processes has sent and no array needs; the rest of theirs can be mapped again."""
        for owner in [owner for owner in self._of if owner not in owners]:
            for mapping in [mapping for mapping in self._of[owner].values() if mapping.seq is None]:
                self._unmap(mapping)

    def close(self) -> None:
        """Forget all. Memory that arrays lie in stays until they are freed."""
        for mappings in self._of.values():
            for mapping in mappings.values():
                mapping.used = None  # it refers to the mapping, which refers to it
        self._of.clear()
        self._count = 0

    def _gather(self) -> None:
        while self._unused:
            mapping = self._unused.popleft()
            if mapping.seq is not None:
                self._ready.append((mapping.owner, mapping.seq))
            mapping.seq = mapping.used = None

    def _map(self, owner: Owner, segment: Segment) -> _Mapping:
        if segment.size > _MOST_BYTES:
            raise ProtocolError(f"a segment of {segment.size} bytes is over the {_MOST_BYTES} allowed")
        for mapping in [mapping for mapping in self._of.get(owner, {}).values() if mapping.seq is None]:
            if self._has_room(owner, segment.size):
                break
            self._unmap(mapping)
        if not self._has_room(owner, segment.size):
            raise ProtocolError("more segments than an actor may share are in use")
        mapping = _Mapping(owner, segment, map_segment(segment, writable=True))
        self._of.setdefault(owner, {})[segment.inode] = mapping
        self._count += 1
        return mapping

    def _has_room(self, owner: Owner, size: int) -> bool:
        mappings = self._of.get(owner, {}).values()
        total = sum(mapping.segment.size for mapping in mappings)
        return self._count < self._most and len(mappings) < _MOST_SEGMENTS and total + size <= _MOST_BYTES

    def _unmap(self, mapping: _Mapping) -> None:
        mappings = self._of[mapping.owner]
        del mappings[mapping.segment.inode]
        self._count -= 1
        if not mappings:
            del self._of[mapping.owner]
