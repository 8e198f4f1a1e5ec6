"""33 processes that use TensorFlow, from nothing to the first forward of each."""

from collections.abc import Callable
from typing import Final

from bench.fresh import fresh
from bench.rows import RAY_PYTHON, not_quickly
from bench.section import Figure, Goal, Measured, Missing, Row, Section

__all__ = ["SECTION"]

_COUNT: Final = 33
_QUICK_COUNT: Final = 9
_OURS: Final = "gpusched launch, preload"
_ORIGINAL: Final = "original: multiprocessing, import inside"
_FORKSERVER: Final = "forkserver, preload"
_KEEPS_NOTHING: Final = frozenset({"original", "each"})


def _count(quick: bool) -> str:
    return str(_QUICK_COUNT if quick else _COUNT)


def _way(name: str) -> Callable[[bool], Measured]:
    def measure(quick: bool) -> Measured:
        figures = fresh("bench.peers.launch", name, _count(quick))
        return figures | ({"again": figures["ready"]} if name in _KEEPS_NOTHING else {})

    return measure


def _ours(quick: bool) -> Measured:
    """From cold as it is typed; again, by a zygote that has forked before, which is how a job restarts its own."""
    cold = fresh("bench.peers.launch", "command", _count(quick))
    warm = fresh("bench.peers.launch", "zygote", _count(quick), "1")
    return {"ready": cold["ready"], "again": warm["again"], "pss": cold["pss"]}


def _ray(quick: bool) -> Measured:
    if not RAY_PYTHON.exists():
        raise Missing("Ray's environment is not there: `make .venv-ray`")
    return fresh("bench.peers.ray_launch", _count(quick), python=str(RAY_PYTHON))


SECTION: Final = Section(
    name="launch",
    title="33 processes with TensorFlow and the original's network, until each has used it once",
    about=(
        "One learner and 32 actors; a quick look starts 9. Each process imports TensorFlow, builds the network of 1.2 "
        "million weights, runs it once and says on a socket that it is ready. `all ready` is from the start of the "
        "command to the last of them, `again` the same for as many more, by what the first start left: a zygote "
        "(which lasts as long as its job, and serves restarts), a fork server. The original and Popen leave nothing: "
        "their second start is as their first. Memory is the PSS of all processes, launcher, supervisor, zygote, fork "
        "server or Ray's own included. gpusched gives each process one thread, as its plan says; the others leave that "
        "to TensorFlow."
    ),
    figures={
        "ready": Figure("all ready", "s", "less"),
        "again": Figure("again", "s", "less"),
        "pss": Figure("memory", "MB", "less"),
    },
    rows=(
        Row(_OURS, "ours", _ours),
        Row(_ORIGINAL, "original", _way("original")),
        Row(_FORKSERVER, "strong", _way("forkserver")),
        Row("Popen each", "other", not_quickly(_way("each")), rounds=1),
        Row("Ray actors", "other", not_quickly(_ray), rounds=1),
    ),
    goals=(
        Goal("33 processes ready, from cold: 1/7 of the original's time", "ready", _OURS, _ORIGINAL, 7),
        Goal("33 processes ready, warm: 1/12 of the original's time", "again", _OURS, _ORIGINAL, 12),
        Goal("memory of 33 processes: 1/3.5 of the original's", "pss", _OURS, _ORIGINAL, 3.5),
        Goal("33 processes ready, from cold: at least level with forkserver", "ready", _OURS, _FORKSERVER),
        Goal("33 processes ready, warm: at least level with forkserver", "again", _OURS, _FORKSERVER),
        Goal("memory of 33 processes: at least level with forkserver", "pss", _OURS, _FORKSERVER),
        Goal("33 processes ready: ahead of Ray", "ready", _OURS, "Ray actors"),
        Goal("memory of 33 processes: ahead of Ray", "pss", _OURS, "Ray actors"),
    ),
    takes_s=560,
    quick_takes_s=35,
)
