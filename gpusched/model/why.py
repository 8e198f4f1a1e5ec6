"""Why a job waits, and until when."""

import math

import msgspec

from gpusched.errors import UsageError
from gpusched.model.status import JobStatus

__all__ = ["Why"]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job's start; of one that does not wait, nothing but the job.

    `place` counts from 1 among the `waiting` jobs of its machine that may start, None: it may not; `ahead` are the ids
    of those before it. `starts`: when it starts in futures that are each as likely (Unix seconds, None for never);
    empty: not predicted. `ways`: options, each of which would let it start now.
    """

    job: JobStatus
    place: int | None = None
    waiting: int = 0
    ahead: tuple[str, ...] = ()
    starts: tuple[float | None, ...] = ()
    ways: tuple[str, ...] = ()

    def start(self, probability: float = 0.5) -> float | None:
        """Return by when it has started with this probability (Unix seconds); None: never, or not predicted.

        Raises UsageError for a probability that is not between 0 and 1.
        """
        if not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise UsageError(f"probability: {probability!r} is no probability", "give a number from 0 to 1")
        rising = sorted(math.inf if start is None else start for start in self.starts)
        found = rising[min(int(probability * len(rising)), len(rising) - 1)] if rising else math.inf
        return None if found == math.inf else found
