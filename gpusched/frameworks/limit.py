"""This process's limit from its environment, and the two things that every limiter does: replace once, and log.

Nothing in gpusched.frameworks imports a third-party package, not even what gpusched itself needs: a replica may be run
by an interpreter of another virtual environment, which has neither gpusched nor msgspec. That is why the two variables
of the limit are read here as well as in gpusched.environment, whose values are msgspec.Structs; a test holds the two
together. For the same reason the annotations are not evaluated: that interpreter may be older than this project's.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpusched.errors import UsageError

__all__ = ["Limit", "log_message", "read_limit", "replace_once"]

_FRACTION_ONE = 10_000


class Limit(NamedTuple):
    """What a framework may allocate in this process: `mib`, and the same as `fraction` of the device in 1/10 000."""

    mib: int
    fraction: int

    @property
    def ratio(self) -> float:
        """The fraction as the number that frameworks take, such as 0.0701."""
        return self.fraction / _FRACTION_ONE


def read_limit(environ: Mapping[str, str]) -> Limit | None:
    """Return the limit that `environ` holds, or None if it holds none. Raises UsageError for a value that is wrong.

    A fraction that was rounded down to nothing counts as 1/10 000: to TensorFlow's sessions 0 means all there is.
    """
    mib, fraction = environ.get("GPUSCHED_MEMORY_LIMIT_MIB"), environ.get("GPUSCHED_MEMORY_FRACTION")
    if mib is None or fraction is None:
        return None
    try:
        limit = Limit(int(mib), round(float(fraction) * _FRACTION_ONE) or 1)
    except (ValueError, OverflowError):
        limit = Limit(0, 0)
    if limit.mib <= 0 or not 0 < limit.fraction <= _FRACTION_ONE:
        raise UsageError(
            f"GPUSCHED_MEMORY_LIMIT_MIB={mib} and GPUSCHED_MEMORY_FRACTION={fraction} are not a limit",
            "give whole MiB above 0 and a number from 0 to 1, or unset both",
        )
    return limit


def replace_once(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of `owner.name`, unless this has been done before."""
    original = getattr(owner, name)
    if not hasattr(original, "gpusched_limits"):
        replacement: Any = functools.wraps(original)(make(original))
        replacement.gpusched_limits = True
        setattr(owner, name, replacement)


def log_message(message: str) -> None:
    """Write a line to stderr, for the replica's log. Never raises: a script must not break over it."""
    if sys.stderr is not None:  # print(file=None) would write to stdout
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            print(f"gpusched: {message}", file=sys.stderr, flush=True)
