"""Batches of 10,000 steps from an actor's process to the learner's: `python -m bench.peers.transport ROW [--quick]`.

First as a stream, as fast as the learner takes them; then one at a time, each acknowledged before the next is sent.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from bench.peers.children import Pipe, forked
from bench.peers.steps import as_arrays, as_lists, check, number, percentiles
from bench.peers.ways import Ours, Pickle5, Pipes, UnixSocket, Way, ZeroMQ

__all__ = ["ROWS", "Plan", "measured"]


class Plan(msgspec.Struct, frozen=True):
    """A row: its way (a directory for its sockets goes in), its batch, how many are streamed and acknowledged."""

    way: Callable[[str], Way]
    batch: Callable[[], Any]
    stream: int
    acknowledged: int


def _float64() -> Any:
    return as_arrays(np.float64)


def _uint8() -> Any:
    return as_arrays(np.uint8)


ROWS: Final = {
    "pipe-lists": Plan(lambda _: Pipes(), as_lists, 12, 16),
    "pipe-float64": Plan(lambda _: Pipes(), _float64, 60, 60),
    "pipe-uint8": Plan(lambda _: Pipes(), _uint8, 600, 500),
    "pickle5-uint8": Plan(lambda _: Pickle5(), _uint8, 600, 500),
    "zmq-ipc": Plan(lambda home: ZeroMQ(f"ipc://{home}/a"), _uint8, 1000, 800),
    "zmq-tcp": Plan(lambda _: ZeroMQ("tcp://127.0.0.1:*"), _uint8, 1000, 800),
    "ours-ipc": Plan(lambda home: Ours(f"ipc://{home}/a"), _uint8, 2000, 1000),
    "ours-ipc-sockets": Plan(lambda home: Ours(f"ipc://{home}/a", share_memory=False), _uint8, 1000, 800),
    "ours-tcp": Plan(lambda _: Ours("tcp://127.0.0.1:0", share_memory=False), _uint8, 1000, 800),
    "unix-socket": Plan(lambda _: UnixSocket(_uint8()), _uint8, 2000, 1500),
}
_BATCHES: Final = 12  # in turn, for a way that does not copy may still hold the last ones
_MEMCPY: Final = "memcpy"
_COPIES: Final = 5000
_WARM: Final = 10  # part of the whole that goes first, unmeasured: one tenth


def measured(plan: Plan) -> dict[str, float]:
    """Return batches a second, and the milliseconds from before a batch is sent until its acknowledgement is back."""
    with tempfile.TemporaryDirectory(prefix="gs-") as home:
        way = plan.way(home)
        actor = forked(_act, way, plan)
        actor.send(way.open_learner())
        rate = _stream(way, actor, plan.stream)
        for count in range(_with_warm(plan.acknowledged)):
            check(way.receive(), count)
            way.acknowledge()
        taken = actor.recv()
        way.close_learner()
    return {"rate": rate, **percentiles(taken)}


def _stream(way: Way, actor: Pipe, batches: int) -> float:
    """Return the batches a second, once the way is warm."""
    warm = _with_warm(batches) - batches
    for count in range(warm):
        check(way.receive(), count)
    began = time.perf_counter()
    for count in range(batches):
        check(way.receive(), warm + count)
    rate = batches / (time.perf_counter() - began)
    actor.send("one at a time")
    return rate


def _act(learner: Pipe, way: Way, plan: Plan) -> None:
    """Be the actor."""
    batches = [plan.batch() for _ in range(_BATCHES)]
    way.open_actor(learner.recv())
    for count in range(_with_warm(plan.stream)):
        number(batches[count % _BATCHES], count)
        way.send(batches[count % _BATCHES])
    learner.recv()
    taken = []
    for count in range(_with_warm(plan.acknowledged)):
        number(batches[count % _BATCHES], count)
        began = time.perf_counter()
        way.exchange(batches[count % _BATCHES])
        taken.append(1000 * (time.perf_counter() - began))
    learner.send(taken[-plan.acknowledged :])
    way.close_actor()


def _with_warm(batches: int) -> int:
    return batches + max(2, batches // _WARM)


def copied(times: int) -> dict[str, float]:
    """Return the same of memcpy within one process: no way between two can be faster with one copy."""
    source = np.concatenate([array.reshape(-1) for array in _uint8()])
    there = np.zeros_like(source)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        np.copyto(there, source)
        taken.append(1000 * (time.perf_counter() - began))
    return {"rate": 1000 * len(taken) / sum(taken), **percentiles(taken)}


def main() -> None:
    """Measure one row, and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=[*ROWS, _MEMCPY])
    parser.add_argument("--quick", action="store_true", help="a third of the batches")
    typed = parser.parse_args()
    part = 3 if typed.quick else 1
    if typed.row == _MEMCPY:
        print(json.dumps(copied(_COPIES // part)))
        return
    plan = ROWS[typed.row]
    print(json.dumps(measured(Plan(plan.way, plan.batch, plan.stream // part, plan.acknowledged // part))))


if __name__ == "__main__":
    main()
