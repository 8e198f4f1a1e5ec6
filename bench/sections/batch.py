"""A batch of 10,000 steps from an actor to the learner."""

from typing import Final

from bench.rows import by_python, by_ray, not_quickly
from bench.section import Figure, Goal, Row, Section

__all__ = ["LIMIT", "OURS", "SECTION", "TCP"]

_PEER: Final = "bench.peers.transport"
_ORIGINAL: Final = "original: Pipe, lists of states and ints"
LIMIT: Final = "limit: unix socket, sendall and recv_into"
OURS: Final = "gpusched.channel, ipc"
TCP: Final = "gpusched.channel, tcp on loopback"

SECTION: Final = Section(
    name="batch",
    title="A batch of 10,000 steps, from one actor's process to the learner's",
    about=(
        "Frames of 10 x 10, actions and values: 1.02 MB as uint8, 8.2 MB as float64. `batches`: streamed, as fast as "
        "the learner takes them. p50 and p99: one at a time, from before it is sent until its acknowledgement is back; "
        "for Ray, from the learner's call until it has the batch. The original's row carries lists of states, each a "
        "list of one array of float64, and of Python's ints, as it did: most of the gain over it comes from sending "
        "whole arrays of uint8 instead, and the rows between show how much. ipc shares memory between processes of one "
        "host, so that it can pass a socket; the row `sockets only` and tcp do not. memcpy is one copy within one "
        "process: any way needs at least that."
    ),
    figures={
        "rate": Figure("batches", "1/s", "more"),
        "p50": Figure("p50", "ms", "less"),
        "p99": Figure("p99", "ms", "less"),
    },
    rows=(
        Row(_ORIGINAL, "original", by_python(_PEER, "pipe-lists")),
        Row(OURS, "ours", by_python(_PEER, "ours-ipc")),
        Row(LIMIT, "limit", by_python(_PEER, "unix-socket")),
        Row(TCP, "ours", by_python(_PEER, "ours-tcp")),
        Row("gpusched.channel, ipc, sockets only", "ours", by_python(_PEER, "ours-ipc-sockets")),
        Row("Pipe, NumPy float64", "strong", by_python(_PEER, "pipe-float64")),
        Row("Pipe, NumPy uint8", "strong", by_python(_PEER, "pipe-uint8")),
        Row("Pipe, NumPy uint8 beside the pickle (protocol 5)", "strong", by_python(_PEER, "pickle5-uint8")),
        Row("ZeroMQ, ipc, uint8 frames", "strong", by_python(_PEER, "zmq-ipc")),
        Row("ZeroMQ, tcp on loopback, uint8 frames", "strong", by_python(_PEER, "zmq-tcp")),
        Row("Ray's object store, lists", "other", not_quickly(by_ray("bench.peers.ray_batch", "lists")), rounds=1),
        Row("Ray's object store, NumPy uint8", "other", by_ray("bench.peers.ray_batch", "uint8"), rounds=1),
        Row("limit: memcpy", "limit", by_python(_PEER, "memcpy")),
    ),
    goals=(
        Goal("batches: at least 100 times the original's rate", "rate", OURS, than=_ORIGINAL, times=100),
        Goal("batches: at least level with a raw unix socket", "rate", OURS, than=LIMIT),
        Goal("batches: p99 at most 2 ms", "p99", OURS, bound=2.0),
        Goal("batches over tcp: at least 80 times the original's rate", "rate", TCP, than=_ORIGINAL, times=80),
    ),
    takes_s=95,
    quick_takes_s=25,
)
