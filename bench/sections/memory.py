"""Memory after minutes of training, ours beside forkserver's, while hundreds of forks are checked."""

from functools import cache, partial
from typing import Any, Final

from bench.fresh import Failed, fresh
from bench.section import Figure, Goal, Measured, Row, Section

__all__ = ["SECTION"]

_OURS: Final = "gpusched launch, preload"
_FORKSERVER: Final = "forkserver, preload"
_FORKS: Final = "8 forks, round after round"
_WORDS: Final = ("33", "600", "50", "8")
_QUICK_WORDS: Final = ("5", "15", "4", "8")
_PATIENCE_S: Final = 1200.0


@cache
def _run(quick: bool) -> dict[str, Any] | Failed:
    """Run all that is measured here, which is one run: the first row that asks waits for it, for its failure too."""
    try:
        return fresh("bench.peers.lasting", *(_QUICK_WORDS if quick else _WORDS), timeout_s=_PATIENCE_S)
    except Failed as failed:
        return failed


def _part(name: str, quick: bool) -> Measured:
    told = _run(quick)
    if isinstance(told, Failed):
        raise told
    found: dict[str, float] = told[name]
    return {figure: value for figure, value in found.items() if figure in SECTION.figures}


SECTION: Final = Section(
    name="memory",
    title="Ten minutes of training in 33 processes, and 400 forks that are checked",
    about=(
        "Two times 33 processes with the original's network train on random batches at the same time for ten minutes, "
        "at a low priority; then they halt, and the memory of each way is summed up (PSS: what processes share counts "
        "once), with launcher, supervisor, zygote or fork server. Both map the same libraries, which makes each look a "
        "little smaller than alone. Meanwhile a zygote forks 8 processes, round after round; each trains five steps "
        "that must lower its loss, and predicts. One that is not done after two minutes hangs."
    ),
    figures={
        "pss": Figure("memory", "MB", "less"),
        "steps": Figure("steps trained", "", "more"),
        "checked": Figure("forks checked", "", "more"),
        "hung": Figure("hung", "", "less"),
        "wrong": Figure("wrong", "", "less"),
    },
    rows=(
        Row(_OURS, "ours", partial(_part, "ours")),
        Row(_FORKSERVER, "strong", partial(_part, "forkserver")),
        Row(_FORKS, "ours", partial(_part, "forks")),
    ),
    goals=(
        Goal("memory after ten minutes of training: at least level with forkserver", "pss", _OURS, _FORKSERVER),
        Goal("50 rounds of 8 forks: none hangs", "hung", _FORKS, bound=0),
        Goal("50 rounds of 8 forks: no wrong result", "wrong", _FORKS, bound=0),
    ),
    rounds=1,
    takes_s=640,
    quick_takes_s=40,
)
