"""The weights of the original's network, from one process to many."""

from typing import Final

from bench.rows import by_python, by_ray, not_quickly
from bench.section import Figure, Goal, Row, Section

__all__ = ["FILE", "LIMIT", "OURS", "SECTION", "TCP"]

_PEER: Final = "bench.peers.weights"
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
OURS: Final = "gpusched.channel, one host"
TCP: Final = "gpusched.channel, tcp on loopback"
FILE: Final = "a file (npz), bytes only"
LIMIT: Final = "limit: shared memory, read in place"

SECTION: Final = Section(
    name="weights",
    title="Weights of the original's network, from one process to 8 and to 32",
    about=(
        "8 arrays float32, 4.73 MB: milliseconds from before they are given away until the last process has them as "
        "arrays, has looked at both ends of each, and has said so; the median of seven versions (Ray: ten), after "
        "twelve. Ours and Ray give views on memory that all share. Nothing is copied into a framework's variables but "
        "in the row of Keras, which is the original's way as it was: that one does more. `read in place` is a limit: "
        "its readers cannot know which version they read, nor that they read one whole."
    ),
    figures={
        "to_8": Figure("to 8", "ms", "less"),
        "to_32": Figure("to 32", "ms", "less"),
    },
    rows=(
        Row(FILE, "original", by_python(_PEER, "file")),
        Row(OURS, "ours", by_python(_PEER, "ours")),
        Row("shared memory, a copy each", "strong", by_python(_PEER, "shared-memory-copies")),
        Row(TCP, "ours", by_python(_PEER, "ours-tcp")),
        Row("gpusched.channel, ipc, sockets only", "ours", by_python(_PEER, "ours-ipc-sockets")),
        Row("ZeroMQ ROUTER, tcp on loopback", "strong", by_python(_PEER, "zmq-router-tcp")),
        Row("ZeroMQ ROUTER, ipc", "strong", by_python(_PEER, "zmq-router-ipc")),
        Row("ZeroMQ PUB, ipc", "strong", by_python(_PEER, "zmq-pub-ipc")),
        Row("Pipe, pickled for each", "original", by_python(_PEER, "pickled-each")),
        Row("Pipe, pickled once", "strong", by_python(_PEER, "pickled-once")),
        Row(
            "Keras .h5, saved and loaded",
            "original",
            not_quickly(by_python("bench.peers.keras_file", environ=_ONE_THREAD)),
            rounds=1,
        ),
        Row("Ray, put and get", "other", not_quickly(by_ray("bench.peers.ray_weights")), rounds=1),
        Row(LIMIT, "limit", by_python(_PEER, "shared-memory")),
    ),
    goals=(
        Goal("weights to 32: at most twice the limit, read in place", "to_32", OURS, than=LIMIT, times=0.5),
        Goal("weights to 32: at least 7 times faster than by file", "to_32", OURS, than=FILE, times=7),
        Goal("weights to 32 over tcp: in at most 70 ms", "to_32", TCP, bound=70.0),
    ),
    takes_s=90,
    quick_takes_s=20,
)
