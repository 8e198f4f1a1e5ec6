"""The environment alone: steps a second on one core."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from bench.fresh import fresh
from bench.rows import python_with
from bench.section import Figure, Goal, Missing, Row, Section

__all__ = ["SECTION"]

Measure = Callable[[bool], Mapping[str, float]]

_GAMES: Final = 1024
_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 0.3


def _measured(row: str, games: int, python: Callable[[], str] = lambda: sys.executable) -> Measure:
    def measure(quick: bool) -> Mapping[str, float]:
        seconds = str(_QUICK_SECONDS if quick else _SECONDS)
        found = fresh("bench.peers.environment", row, str(games), seconds, python=python())
        if "missing" in found:
            raise Missing(found["missing"])
        return found

    return measure


_OURS: Final = "gpusched's snake, 1,024 games (NumPy)"
_STRONG: Final = "1,024 games in straightforward NumPy"

SECTION: Final = Section(
    name="environment",
    title="The environment alone, on one core",
    about=(
        "Snake with random actions, drawn beforehand: steps of all games together in a second of CPU time, each with "
        "frame, reward, end and score. All rows play the same rules, which tests compare game by game. Numba's loop "
        "is ahead; gpusched does without it, because the smallest network takes many times longer than either."
    ),
    figures={"rate": Figure("steps", "1/s", "more")},
    rows=(
        Row(_OURS, "ours", _measured("ours", _GAMES)),
        Row("one game in plain Python", "original", _measured("one", 16)),
        Row(_STRONG, "strong", _measured("numpy", _GAMES)),
        Row(
            "1,024 games in a loop that Numba compiles",
            "other",
            _measured("numba", _GAMES, lambda: python_with("numba")),
        ),
    ),
    goals=(
        Goal("at least 10 million steps a second on one core", "rate", _OURS, bound=10_000_000),
        Goal("ahead of straightforward NumPy", "rate", _OURS, than=_STRONG),
    ),
    takes_s=20,
    quick_takes_s=5,
)
