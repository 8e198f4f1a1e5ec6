"""Memory that a sender on this host fills and a receiver maps: no socket between, and the checks that make it safe.

A segment is a memfd. It has no name in any file system, so nothing is left behind however a process ends; a receiver of
the same user opens it through /proc/PID/fd. Seals forbid to shrink it, so no peer can pull memory from under a mapping;
what a peer says of a segment is held against what the kernel says before it is mapped. It must not know sockets.
"""

import fcntl
import functools
import hashlib
import mmap
import os
import stat
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from gpusched.channel.framing import extent, pieces
from gpusched.channel.messages import ArraySpec, Segment
from gpusched.channel.values import Array
from gpusched.errors import ProtocolError

__all__ = ["SMALLEST", "FilledSegment", "Memory", "ReusableSegment", "host_token", "map_segment", "most_offers"]

SMALLEST: Final = 64 << 10
"""Bytes below which frames are as quick: a page table costs, too."""
_SIZES_SEALED: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_ALL_SEALED: Final = _SIZES_SEALED | fcntl.F_SEAL_WRITE
_BLOCK: Final = 512  # the unit of st_blocks


_MOST_OFFERS: Final = 8
_MOST_OFFERED: Final = 32 << 20


def most_offers(size: int) -> int:
    """Return how many segments of so many bytes may be offered to one who has answered none of them; one at least.

    Both sides go by it: who is offered them answers when half of them have come, or with what he says anyway.
    """
    return max(1, min(_MOST_OFFERS, _MOST_OFFERED // size))


def host_token() -> str:
    """Return what two processes have in common if one can open the other's segments; "" where that cannot be told.

    Boot, pid namespace and user: the boot's id differs between hosts, and a pid means the same in one namespace only.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.blake2s(f"{boot}{namespace} {os.geteuid()}".encode(), digest_size=16).hexdigest()


class Memory:
    """A memfd of this process. Its descriptor is closed by close(), or with the last reference to this object.

    Raises OSError where that cannot be had.
    """

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("gpusched", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        self.close.atexit = False
        os.ftruncate(self.descriptor, size)
        inode = os.fstat(self.descriptor).st_ino
        self.segment: Final = Segment(os.getpid(), self.descriptor, inode, size)

    def allocate(self) -> None:
        """Take all of it now: to write is faster then, and a host that has no more says so here. Raises OSError."""
        os.posix_fallocate(self.descriptor, 0, self.segment.size)

    def seal(self, seals: int) -> None:
        """Forbid this for ever, and to forbid more."""
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)


class FilledSegment:
    """A segment with these arrays, which nobody can change any more; in `spare` if it is as large as it must be.

    Raises OSError where that cannot be had.
    """

    def __init__(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array], spare: Memory | None = None) -> None:
        size = extent(specs)
        self._memory = spare if spare is not None and spare.segment.size == size else Memory(size)
        self.descriptor: Final = self._memory.descriptor
        self.segment: Final = self._memory.segment
        for (start, stop), array in zip(pieces(specs), arrays, strict=True):
            view, done = array.reshape(-1).view(np.uint8).data, 0
            while start + done < stop:  # one call writes 2 GiB at the most
                done += os.pwrite(self.descriptor, view[done:], start + done)
        self._memory.seal(_ALL_SEALED)

    def read(self) -> Array:
        """Map it here; return its bytes, read-only."""
        return np.frombuffer(mmap.mmap(self.descriptor, self.segment.size, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)


class ReusableSegment(Memory):
    """A segment of at least `size` bytes, to be written again and again. Raises OSError where that cannot be had."""

    def __init__(self, size: int) -> None:
        step = max(mmap.PAGESIZE, 1 << max(0, size.bit_length() - 3))  # batches of about one size find room in it
        super().__init__(-(-size // step) * step)
        self.allocate()
        self.seal(_SIZES_SEALED)
        mapped = mmap.mmap(self.descriptor, self.segment.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.block: Final[Array] = np.frombuffer(mapped, np.uint8)

    def write(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array]) -> None:
        """Copy the arrays to where `specs` has them."""
        for (start, stop), array in zip(pieces(specs), arrays, strict=True):
            self.block[start:stop] = array.reshape(-1).view(np.uint8)


def map_segment(segment: Segment, *, writable: bool) -> mmap.mmap:
    """Map a peer's segment. Raises ProtocolError if it cannot be opened, or is not what the peer says that it is.

    `writable` False asks for one that nobody can write any more.
    """
    try:
        descriptor = _open(segment, os.O_RDWR if writable else os.O_RDONLY)
        try:
            wanted = _SIZES_SEALED if writable else _ALL_SEALED
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & wanted != wanted:
                raise ProtocolError("a segment is not sealed")
            if writable:
                return mmap.mmap(descriptor, segment.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
            return mmap.mmap(descriptor, segment.size, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(descriptor)
    except (OSError, ValueError, OverflowError) as error:
        raise ProtocolError(f"a segment cannot be opened: {error}") from None


def _open(segment: Segment, flags: int) -> int:
    """Open what the peer names only after it is known to be its memfd: to open a device or a pipe can do things."""
    handle = os.open(f"/proc/{segment.pid}/fd/{segment.descriptor}", os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != (_device(), segment.inode):
            raise ProtocolError("a segment is not there any more, or is something else")
        if found.st_size != segment.size or not 0 < segment.size <= found.st_blocks * _BLOCK:
            raise ProtocolError(f"a segment of {segment.size} bytes has {found.st_size}, or not all of its memory")
        return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
    finally:
        os.close(handle)


@functools.cache
def _device() -> int:
    """Return the device that all memfds of small pages are on. Those of huge pages are not: they can end in SIGBUS."""
    descriptor = os.memfd_create("gpusched-device", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
