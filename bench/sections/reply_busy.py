"""A small request and its reply, on a busy host."""

from typing import Final

from bench.busy import beside_busy_loops
from bench.section import Goal, Section
from bench.sections import reply

__all__ = ["SECTION"]

SECTION: Final[Section] = beside_busy_loops(
    reply.SECTION,
    (reply.OURS, reply.PIPE, reply.TCP, reply.ZEROMQ_TCP, reply.LEAST),
    (
        Goal("busy host: ask and answer: at most four times a pipe's time", "p50", reply.OURS, reply.PIPE, 0.25),
        Goal("busy host: ask and answer over tcp: level with bare ZeroMQ", "p50", reply.TCP, reply.ZEROMQ_TCP),
    ),
)
