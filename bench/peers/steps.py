"""What all ways of carrying a batch carry: 10,000 steps, as lists or as arrays. NumPy only: Ray's rows import it too.

A batch is numbered in its first frame before it is sent, and its receiver looks at that number and at its last step.
"""

from typing import Any, Final

import numpy as np

__all__ = ["STEPS", "Carried", "as_arrays", "as_lists", "check", "number", "percentiles"]

Carried = tuple[Any, Any, Any]
"""Frames, actions and values of 10,000 steps: lists, or arrays."""

STEPS: Final = 10_000
_LAST_ACTION: Final = 3
_NUMBERS: Final = 100


def as_arrays(dtype: type[np.generic]) -> Carried:
    """Return frames [10000, 10, 10], actions [10000] and values [10000], all of one dtype."""
    random = np.random.default_rng(0)
    frames = (random.random((STEPS, 10, 10)) < 0.2).astype(dtype)  # noqa: PLR2004 (about a snake and a fruit)
    actions = random.integers(0, 4, STEPS).astype(dtype)
    actions[-1] = _LAST_ACTION
    return frames, actions, random.integers(0, 2, STEPS).astype(dtype)


def as_lists() -> Carried:
    """Return the same as the original kept it: states [frame] with an array float64 [10, 10], and two lists of ints."""
    frames, actions, values = as_arrays(np.float64)
    return [[frame.copy()] for frame in frames], [int(action) for action in actions], [int(value) for value in values]


def number(batch: Carried, count: int) -> None:
    """Write which batch this is into it, as no other batch before or after it has."""
    frames = batch[0]
    _frame(frames[0])[0, 0] = count % _NUMBERS


def check(batch: Any, count: int) -> None:
    """Raise ValueError unless this is batch `count`, whole."""
    frames, actions, values = batch
    if _frame(frames[0])[0, 0] != count % _NUMBERS or actions[-1] != _LAST_ACTION or len(values) != STEPS:
        raise ValueError(f"batch {count} is not what was sent")


def _frame(state: Any) -> Any:
    """Return the array of a state: itself, or what is in the original's list of one."""
    return state[0] if isinstance(state, list) else state


def percentiles(seconds: Any) -> dict[str, float]:
    """Return the median and the 99th percentile of durations, in the same unit."""
    return {"p50": float(np.percentile(seconds, 50)), "p99": float(np.percentile(seconds, 99))}
