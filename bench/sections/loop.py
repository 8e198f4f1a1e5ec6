"""The whole loop: four processes play, one learns, for minutes; ours, the original's, and without processes."""

from collections.abc import Callable
from typing import Final

from bench.fresh import fresh
from bench.section import Figure, Goal, Measured, Row, Section

__all__ = ["SECTION"]

_SECONDS: Final = 240
_HALF_SECONDS: Final = 120
_STEPS_ONLY_SECONDS: Final = 60
_QUICK_SECONDS: Final = 15
_OURS: Final = "gpusched launch snake, original's network"
_SMALL: Final = "gpusched launch snake, small network"
_ORIGINAL: Final = "original"
_ONE: Final = "one process, 400 games at once"


def _run(module: str, *words: str, seconds: int = _SECONDS) -> Callable[[bool], Measured]:
    def measure(quick: bool) -> Measured:
        return fresh(f"bench.peers.{module}", str(_QUICK_SECONDS if quick else seconds), *words)

    return measure


def _ours(network: str, seconds: int = _SECONDS) -> Callable[[bool], Measured]:
    return _run("whole", "--procs", "4", "--network", network, seconds=seconds)


def _steps_of(module: str, *words: str) -> Callable[[bool], Measured]:
    """Run it for a minute: enough for steps a second, and too short for a score that can stand beside the others."""
    measure = _run(module, *words, seconds=_STEPS_ONLY_SECONDS)
    return lambda quick: {name: value for name, value in measure(quick).items() if name != "score"}


SECTION: Final = Section(
    name="loop",
    title="The whole loop: four processes play Snake, one learns",
    about=(
        "From the start of the command; `steps` are environment steps that were learnt from, with the median and the "
        "spread of the six parts of one run; the score is the mean in the last fifth of the run. The original and "
        "gpusched with the original's network run for four minutes, the small network has two, the other rows one "
        "minute, which gives their steps only; a quick look takes 15 s. The original trains in process 0 with what "
        "four processes play, step by step, with one Session.run each; `fixed` sleeps instead of spinning and computes "
        "with one thread in each process. One process with 400 games has the same network, labels and update, and no "
        "transport. gpusched runs its own workload, which plays 64 games in each actor and learns with A2C: the scores "
        "compare what each design reaches, algorithm included."
    ),
    figures={
        "steps": Figure("steps", "1/s", "more"),
        "score": Figure("score at the end", "", "more"),
        "pss": Figure("memory", "MB", "less"),
    },
    rows=(
        Row(_OURS, "ours", _ours("original")),
        Row(_SMALL, "ours", _ours("small", _HALF_SECONDS)),
        Row(_ORIGINAL, "original", _run("original_loop")),
        Row("original, fixed", "strong", _steps_of("original_loop", "--fixed")),
        Row(_ONE, "strong", _steps_of("vectorised")),
    ),
    goals=(
        Goal("whole loop, the original's network: 3.5 times the original's steps", "steps", _OURS, _ORIGINAL, 3.5),
        Goal("whole loop, the original's network: 1.5 times the original's score", "score", _OURS, _ORIGINAL, 1.5),
        Goal("whole loop, the small network: 15 times the original's steps", "steps", _SMALL, _ORIGINAL, 15),
        Goal("whole loop, the small network: 3 times the original's score", "score", _SMALL, _ORIGINAL, 3),
        Goal("whole loop, the original's network: steps at least level with one process", "steps", _OURS, _ONE),
    ),
    rounds=1,
    takes_s=2 * _SECONDS + _HALF_SECONDS + 2 * _STEPS_ONLY_SECONDS + 15,
    quick_takes_s=5 * _QUICK_SECONDS + 10,
)
