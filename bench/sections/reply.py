"""A small request and its reply."""

from typing import Final

from bench.rows import by_python, by_ray
from bench.section import Figure, Goal, Row, Section

__all__ = ["LEAST", "OURS", "PIPE", "SECTION", "TCP", "ZEROMQ_TCP"]

_PEER: Final = "bench.peers.reply"
OURS: Final = "gpusched.channel, ipc"
LEAST: Final = "limit: headers and arrays alone"
PIPE: Final = "Pipe"
TCP: Final = "gpusched.channel, tcp on loopback"
ZEROMQ_TCP: Final = "ZeroMQ, tcp on loopback"

SECTION: Final = Section(
    name="reply",
    title="A request of 1 KiB and a reply as long, between two processes",
    about=(
        "From before the request is made until its reply is there, one at a time. gpusched.channel is behind a bare "
        "pipe or socket here: it finds the actor by its name, counts its credits, and checks what came (decision 29). "
        "The last row is Python with the same headers, arrays and calls of the kernel, and nothing else of that."
    ),
    figures={
        "p50": Figure("p50", "µs", "less"),
        "p99": Figure("p99", "µs", "less"),
        "rate": Figure("replies", "1/s", "more"),
    },
    rows=(
        Row(OURS, "ours", by_python(_PEER, "ours-ipc")),
        Row(PIPE, "strong", by_python(_PEER, "pipe")),
        Row("ZeroMQ, ipc", "strong", by_python(_PEER, "zmq-ipc")),
        Row(TCP, "ours", by_python(_PEER, "ours-tcp")),
        Row(ZEROMQ_TCP, "strong", by_python(_PEER, "zmq-tcp")),
        Row("a call of a Ray actor", "other", by_ray("bench.peers.ray_batch", "reply"), rounds=1),
        Row("limit: unix socket", "limit", by_python(_PEER, "unix-socket")),
        Row(LEAST, "limit", by_python(_PEER, "least")),
    ),
    goals=(
        Goal("ask and answer: at most twice a pipe's time", "p50", OURS, than=PIPE, times=0.5),
        Goal("ask and answer over tcp: level with bare ZeroMQ", "p50", TCP, than=ZEROMQ_TCP),
    ),
    takes_s=17,
    quick_takes_s=12,
)
