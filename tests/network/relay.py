"""A link that fails on demand: `python -m tests.network.relay NAMESPACE NAMESPACE`, told on stdin how to be.

It has a tun device in each namespace and carries the packets of one to the other: a line `UP DELAY LOSS` says whether
at all, after how many seconds, and what part of them is lost at random. It answers each line once it is so.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from pathlib import Path
from typing import Final

_TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h
_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000  # IFF_TUN | IFF_NO_PI
_CLONE_NEWNET: Final = 0x40000000
_LONGEST: Final = 1 << 16
_AT_ONCE: Final = 64


def open_tun(namespace: str) -> int:
    """Return a tun device `tun0` in that namespace; this process is in it from then on."""
    with Path(f"/run/netns/{namespace}").open("rb") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH14x", b"tun0", _TUN_WITHOUT_HEADER))
    return device


class Relay:
    """Carries packets between two devices."""

    def __init__(self, one: int, other: int) -> None:
        self._other = {one: other, other: one}
        self._under_way: collections.deque[tuple[float, int, bytes]] = collections.deque()
        self._up, self._delay_s, self._loss = True, 0.0, 0.0
        self._random = random.Random(0)  # noqa: S311

    def run(self) -> None:
        """Carry until stdin is closed."""
        while True:
            first = self._under_way[0][0] - time.monotonic() if self._under_way else None
            ready, _, _ = select.select([0, *self._other], [], [], None if first is None else max(0.0, first))
            self._deliver()
            for source in ready:
                if source == 0 and not self._told():
                    return
                if source != 0:
                    self._take(source)
            self._deliver()

    def _told(self) -> bool:
        line = sys.stdin.readline()
        if line:
            up, delay, loss = line.split()
            self._up, self._delay_s, self._loss = up == "1", float(delay), float(loss)
            self._under_way.clear()
            print("so", flush=True)
        return bool(line)

    def _take(self, source: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(source, _LONGEST)
            except OSError:  # nothing is there, or the device is down
                return
            if self._up and self._random.random() >= self._loss:
                self._under_way.append((time.monotonic() + self._delay_s, self._other[source], packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, target, packet = self._under_way.popleft()
            try:
                os.write(target, packet)
            except OSError:  # its queue is full, as a router's may be
                continue


if __name__ == "__main__":
    devices = [open_tun(name) for name in sys.argv[1:3]]
    print("ready", flush=True)
    Relay(*devices).run()
