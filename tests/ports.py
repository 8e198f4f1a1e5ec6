"""Ports that nobody else takes between the moment a test chooses one and the moment something listens there."""

import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

__all__ = ["free_port"]

_FIRST: Final = 10_240
"""Below 32768: from there on the kernel gives ports to whoever asks for any (ip(7), ip_local_port_range)."""

_EACH: Final = 400
"""So many has each process that runs tests."""


def free_port() -> int:
    """Return a port at which nothing listens; another process that runs tests is given others."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("the row has no end")


def _row() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 50
    for number in itertools.count(random.SystemRandom().randrange(_EACH)):
        yield _FIRST + worker * _EACH + number % _EACH


_PORTS: Final = _row()
