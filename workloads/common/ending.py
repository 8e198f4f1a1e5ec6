"""How a process of a workload ends by what is to be expected: with one sentence, and no traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.channel import ChannelError, LearnerGone
from workloads.common.checkpoint import UnusableWeights

__all__ = ["ends_with_reason"]


@contextmanager
def ends_with_reason(*others: type[Exception]) -> Iterator[None]:
    """Within it, or in a function that it decorates, ChannelError, UnusableWeights and `others` end the process.

    An OSError among `others` is of a file that could not be read or written. A learner that is gone is no error: the
    job is over.
    """
    expected: tuple[type[Exception], ...] = (ChannelError, UnusableWeights, *others)
    try:
        yield
    except LearnerGone:
        return
    except expected as error:
        sys.exit(f"not read or written: {error}" if isinstance(error, OSError) else str(error))
