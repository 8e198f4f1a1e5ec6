"""A small request and its reply."""

from typing import Final

from bench.rows import by_python, by_ray
from bench.section import Figure, Row, Section

__all__ = ["SECTION"]

_PEER: Final = "bench.peers.reply"

SECTION: Final = Section(
    name="reply",
    title="A request of 1 KiB and a reply as long, between two processes",
    about=(
        "From before the request is made until its reply is there, one at a time. gpusched.channel is behind a bare "
        "pipe or socket here: it finds the actor by its name, counts its credits, and checks what came. The aim, not "
        "reached on an idle host, is twice a pipe's time."
    ),
    figures={
        "p50": Figure("p50", "µs", "less"),
        "p99": Figure("p99", "µs", "less"),
        "rate": Figure("replies", "1/s", "more"),
    },
    rows=(
        Row("gpusched.channel, ipc", "ours", by_python(_PEER, "ours-ipc")),
        Row("Pipe", "strong", by_python(_PEER, "pipe")),
        Row("ZeroMQ, ipc", "strong", by_python(_PEER, "zmq-ipc")),
        Row("gpusched.channel, tcp on loopback", "ours", by_python(_PEER, "ours-tcp")),
        Row("ZeroMQ, tcp on loopback", "strong", by_python(_PEER, "zmq-tcp")),
        Row("a call of a Ray actor", "other", by_ray("bench.peers.ray_batch", "reply"), rounds=1),
        Row("limit: unix socket", "limit", by_python(_PEER, "unix-socket")),
    ),
    takes_s=17,
    quick_takes_s=12,
)
