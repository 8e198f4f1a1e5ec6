"""How far a training was at which time, and what that comes to: steps a second, and the score at the end."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

__all__ = ["Point", "figures"]

_PARTS = 6
_END_OF_RUN = 0.8


class Point(msgspec.Struct, frozen=True):
    """So many `seconds` after the start of the command: environment steps learnt from, mean score of late games."""

    seconds: float
    steps: float
    score: float | None


def figures(curve: Sequence[Point], seconds: float) -> dict[str, Any]:
    """Return `steps`, a second, in each sixth of a run of so many seconds, and `score`, the mean over its last fifth.

    Between two points, steps are taken to grow evenly: some loops count thousands of them at once.
    """
    part = seconds / _PARTS
    marks = [_steps_at(curve, part * number) for number in range(_PARTS + 1)]
    found: dict[str, Any] = {"steps": [(after - before) / part for before, after in pairwise(marks)]}
    scored = [point for point in curve if point.score is not None]
    if late := [point.score for point in scored if point.seconds >= _END_OF_RUN * seconds] or [
        point.score for point in scored[-1:]
    ]:
        found["score"] = sum(score or 0.0 for score in late) / len(late)
    return found


def _steps_at(curve: Sequence[Point], seconds: float) -> float:
    before = Point(0.0, 0.0, None)
    for point in curve:
        if point.seconds >= seconds:
            span = point.seconds - before.seconds
            done = (seconds - before.seconds) / span if span else 1.0
            return before.steps + done * (point.steps - before.steps)
        before = point
    return before.steps
