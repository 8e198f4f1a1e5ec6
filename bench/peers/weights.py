"""Weights from one process to n others, until the last has them: `python -m bench.peers.weights ROW [--quick]`.

Every receiver says over a pipe of its own which version it has in hand, whatever the way of the weights is.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Final

from bench.peers.children import Pipe, end_all, forked
from bench.peers.layers import sealed, version_of
from bench.peers.senders import (
    Files,
    OncePickled,
    Ours,
    PickledForEach,
    Published,
    Routed,
    Sender,
    SharedMemory,
)

__all__ = ["ROWS", "measured"]

RECEIVERS: Final = (8, 32)
_VERSIONS: Final = 7
_WARM: Final = 12
_QUICKLY: Final = 3

ROWS: Final[dict[str, Callable[[str], Sender]]] = {
    "file": Files,
    "pickled-each": lambda _: PickledForEach(),
    "pickled-once": lambda _: OncePickled(),
    "zmq-router-ipc": lambda home: Routed(f"ipc://{home}/a"),
    "zmq-router-tcp": lambda _: Routed("tcp://127.0.0.1:*"),
    "zmq-pub-ipc": lambda home: Published(f"ipc://{home}/a"),
    "shared-memory-copies": lambda _: SharedMemory(copied=True),
    "shared-memory": lambda _: SharedMemory(copied=False),
    "ours": lambda home: Ours(f"ipc://{home}/a"),
    "ours-ipc-sockets": lambda home: Ours(f"ipc://{home}/a", share_memory=False),
    "ours-tcp": lambda _: Ours("tcp://127.0.0.1:0", share_memory=False),
}


def measured(row: str, receivers: int, versions: int, warm: int) -> float:
    """Return the median of the milliseconds from before a version is given away until its last receiver has it."""
    with tempfile.TemporaryDirectory(prefix="gs-") as home:
        sender = ROWS[row](home)
        pipes = [forked(_receive, sender, rank) for rank in range(receivers)]
        address = sender.open(pipes)
        for pipe in pipes:
            pipe.send(address)
        sender.meet(receivers)
        for pipe in pipes:
            pipe.recv()
        taken = [_given(sender, pipes, version) for version in range(1, warm + versions + 1)]
        end_all()
        sender.close()
    return statistics.median(taken[warm:])


def _given(sender: Sender, pipes: list[Pipe], version: int) -> float:
    sealed(sender.weights, version)
    began = time.perf_counter()
    sender.give()
    have = {pipe.recv() for pipe in pipes}
    taken = 1000 * (time.perf_counter() - began)
    if have != {version}:
        raise RuntimeError(f"version {version} was given away, the receivers have {have}")
    return taken


def _receive(pipe: Pipe, sender: Sender, rank: int) -> None:
    """Be a receiver, until the sender's process ends."""
    take = sender.receiver(pipe, pipe.recv(), rank)
    pipe.send("here")
    while True:
        pipe.send(version_of(take()))


def main() -> None:
    """Measure one row, and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--quick", action="store_true", help="a third of the versions")
    typed = parser.parse_args()
    part = _QUICKLY if typed.quick else 1
    versions, warm = _VERSIONS // part, _WARM // part
    print(json.dumps({f"to_{receivers}": measured(typed.row, receivers, versions, warm) for receivers in RECEIVERS}))


if __name__ == "__main__":
    main()
