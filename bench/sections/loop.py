"""The whole loop: four processes play, one learns, for minutes; ours, the original's, and without processes."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from bench.fresh import fresh
from bench.rows import python_with
from bench.section import Figure, Goal, Measured, Missing, Row, Section

__all__ = ["SECTION", "STEPS_ONLY"]

_SECONDS: Final = 240
_HALF_SECONDS: Final = 120
_STEPS_ONLY_SECONDS: Final = 60
_QUICK_SECONDS: Final = 15
_ACTORS: Final = ("--procs", "4")
_OURS: Final = "gpusched launch snake, original's network"
_SMALL: Final = "gpusched launch snake, small network, inputs paths"
_SMALL_FRAME: Final = "gpusched launch snake, small network, inputs frame"
_ORIGINAL: Final = "original"
_ONE: Final = "one process, 400 games at once"
_TWO_ACTORS: Final = "gpusched launch snake --procs 2, on two cores"
_ALONE: Final = "one process on one core, Numba and JAX, 1,024 games"
_ALONE_512: Final = "one process on one core, Numba and JAX, 512 games"


def _run(module: str, *words: str, seconds: int = _SECONDS) -> Callable[[bool], Measured]:
    def measure(quick: bool) -> Measured:
        return fresh(f"bench.peers.{module}", str(_QUICK_SECONDS if quick else seconds), *words)

    return measure


def _ours(*words: str, seconds: int = _SECONDS) -> Callable[[bool], Measured]:
    return _run("whole", *_ACTORS, *words, seconds=seconds)


def _steps_of(module: str, *words: str) -> Callable[[bool], Measured]:
    """Run it for a minute: enough for steps a second, and too short for a score that can stand beside the others."""
    measure = _run(module, *words, seconds=_STEPS_ONLY_SECONDS)
    return lambda quick: {name: value for name, value in measure(quick).items() if name != "score"}


def _alone(games: int) -> Callable[[bool], Measured]:
    """Run it for a minute, as `_steps_of` does. Raises Missing where Numba or JAX is in no environment."""

    def measure(quick: bool) -> Measured:
        seconds = _QUICK_SECONDS if quick else _STEPS_ONLY_SECONDS
        python = python_with("numba", "jax")
        found = fresh("bench.peers.alone", str(seconds), str(games), python=python, environ=_ONE_THREAD)
        if "missing" in found:
            raise Missing(found["missing"])
        return {name: value for name, value in found.items() if name != "score"}

    return measure


_ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
_TWO_TO_ONE: Final = (
    Row(_TWO_ACTORS, "ours", _steps_of("whole", "--procs", "2", "--cpus", "2")),
    Row(_ALONE, "strong", _alone(1024)),
    Row(_ALONE_512, "strong", _alone(512)),
)
"""A learner and two actors on two cores, and one process on one: the same network, inputs and numbers."""

SECTION: Final = Section(
    name="loop",
    title="The whole loop: four processes play Snake, one learns",
    about=(
        "From the start of the command; `steps` are environment steps that were learnt from, with the median and the "
        "spread of the six parts of one run; the score is the mean in the last fifth of the run. The original and "
        "gpusched with the original's network run for four minutes, the small network for two, the other rows for one "
        "minute, which gives their steps only; a quick look takes 15 s. The original trains in process 0 with what "
        "four processes play, step by step, with one Session.run each; `fixed` sleeps instead of spinning and computes "
        "with one thread in each process. One process with 400 games has the same network, labels and update, and no "
        "transport. gpusched runs its own workload, which learns with A2C: the scores compare what each design "
        "reaches, algorithm included. Its actors play 64 games each with the original's network, 256 with the small "
        "one. The inputs `paths`, which are the default of `launch snake`, are knowledge made by hand: where each move "
        "leads. The original sees the frame alone. The last three rows have the default network and inputs: a learner "
        "and two actors on two cores, beside one process that keeps to one core, and in which nothing travels or "
        "waits; its time counts from its imports on."
    ),
    figures={
        "steps": Figure("steps", "1/s", "more"),
        "score": Figure("score at the end", "", "more"),
        "pss": Figure("memory", "MB", "less"),
    },
    rows=(
        Row(_OURS, "ours", _ours("--network", "original")),
        Row(_SMALL_FRAME, "ours", _ours("--inputs", "frame", seconds=_HALF_SECONDS)),
        Row(_SMALL, "ours", _ours(seconds=_HALF_SECONDS)),
        Row(_ORIGINAL, "original", _run("original_loop")),
        Row("original, fixed", "strong", _steps_of("original_loop", "--fixed")),
        Row(_ONE, "strong", _steps_of("vectorised")),
        *_TWO_TO_ONE,
    ),
    goals=(
        Goal("whole loop, the original's network: 3.5 times the original's steps", "steps", _OURS, _ORIGINAL, 3.5),
        Goal("whole loop, the original's network: 1.5 times the original's score", "score", _OURS, _ORIGINAL, 1.5),
        Goal("whole loop, the small network: 15 times the original's steps", "steps", _SMALL_FRAME, _ORIGINAL, 15),
        Goal("whole loop, the small network: 3 times the original's score", "score", _SMALL_FRAME, _ORIGINAL, 3),
        Goal("whole loop, the original's network: steps at least level with one process", "steps", _OURS, _ONE),
        *(
            Goal(f"two actors and a learner: 1.5 times the steps of {one}", "steps", _TWO_ACTORS, one, 1.5)
            for one in (_ALONE, _ALONE_512)
        ),
    ),
    rounds=1,
    takes_s=2 * _SECONDS + 2 * _HALF_SECONDS + 5 * _STEPS_ONLY_SECONDS + 15,
    quick_takes_s=9 * _QUICK_SECONDS + 10,
)

STEPS_ONLY: Final = replace(
    SECTION,
    rows=(Row(_SMALL, "ours", _steps_of("whole", *_ACTORS)), *_TWO_TO_ONE),
    takes_s=4 * _STEPS_ONLY_SECONDS + 10,
    quick_takes_s=4 * _QUICK_SECONDS + 5,
)
"""A minute each."""
