"""Memory that a sender on this host fills and a receiver maps: no socket between, and the checks that make it safe.

A segment is a memfd. It has no name in any file system, so nothing is left behind however a process ends; a receiver of
the same user opens it through /proc/PID/fd. Seals forbid to shrink it, so no peer can pull memory from under a mapping;
what a peer claims of a segment is checked with the kernel before it is mapped. It must not know sockets.
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

__all__ = ["SMALLEST", "ReusableSegment", "WeightsSegment", "can_share_weights", "host_token", "map_segment"]

SMALLEST: Final = 64 << 10
"""Bytes below which frames are as quick: a page table costs, too."""
_SIZES_SEALED: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEALED_FOR_OTHERS: Final = _SIZES_SEALED | 0x0010  # F_SEAL_FUTURE_WRITE of linux/fcntl.h, Linux 5.1
_BLOCK: Final = 512  # the unit of st_blocks


def host_token() -> str:
    """Return what two processes have in common if one can open the other's segments; "" where that is unknown.

    Boot, pid namespace and user: the boot's id differs between hosts, and a pid means the same in one namespace only.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.blake2s(f"{boot}{namespace} {os.geteuid()}".encode(), digest_size=16).hexdigest()


class Memory:
    """A memfd of `size` bytes. Its descriptor is closed by close(), or with the last reference to this object.

    Raises OSError where that cannot be had.
    """

    block: Array
    """All of it, as its process sees it."""

    def __init__(self, size: int) -> None:
        self.descriptor: Final = os.memfd_create("gpusched", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        self.close.atexit = False
        os.ftruncate(self.descriptor, size)
        inode = os.fstat(self.descriptor).st_ino
        self.segment: Final = Segment(os.getpid(), self.descriptor, inode, size)

    def seal(self, seals: int) -> None:
        """Forbid this for ever, and to forbid more."""
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)

    def write(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array]) -> None:
        """Copy the arrays to where `specs` has them."""
        for (start, stop), array in zip(pieces(specs), arrays, strict=True):
            self.block[start:stop] = array.reshape(-1).view(np.uint8)


class ReusableSegment(Memory):
    """A segment of `size` bytes for batches, written again and again; its receiver may write to it, too."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        os.posix_fallocate(self.descriptor, 0, size)  # not page by page, when the first batch is written
        self.seal(_SIZES_SEALED)
        mapped = mmap.mmap(self.descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.block = np.frombuffer(mapped, np.uint8)


class WeightsSegment(Memory):
    """A segment with these arrays, in which only this process can write others of the same size."""

    def __init__(self, specs: tuple[ArraySpec, ...], arrays: Sequence[Array]) -> None:
        super().__init__(extent(specs))
        for (start, stop), array in zip(pieces(specs), arrays, strict=True):
            view, done = array.reshape(-1).view(np.uint8).data, 0
            while start + done < stop:  # one call writes 2 GiB at the most; new pages are not cleared first, so
                done += os.pwrite(self.descriptor, view[done:], start + done)
        self.block = np.frombuffer(mmap.mmap(self.descriptor, self.segment.size), np.uint8)
        self.seal(_SEALED_FOR_OTHERS)


@functools.cache
def can_share_weights() -> bool:
    """Return whether this kernel, and what may stand between, let a process seal its memory for others only.

    Raises OSError where there is no memory or no descriptor to find that out with.
    """
    memory = Memory(mmap.PAGESIZE)
    try:
        memory.seal(_SEALED_FOR_OTHERS)
    except OSError:
        return False
    return True


def map_segment(segment: Segment, *, writable: bool) -> mmap.mmap:
    """Map a peer's segment. Raises ProtocolError if it cannot be opened, or is not what the peer claims.

    `writable` False asks for one that only the peer can write.
    """
    try:
        descriptor = _open(segment, os.O_RDWR if writable else os.O_RDONLY)
        try:
            wanted = _SIZES_SEALED if writable else _SEALED_FOR_OTHERS
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
