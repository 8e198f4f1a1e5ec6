"""A batch of 10,000 steps from an actor to the learner, on a busy host."""

from typing import Final

from bench.busy import beside_busy_loops
from bench.section import Goal, Section
from bench.sections import batch

__all__ = ["SECTION"]

SECTION: Final[Section] = beside_busy_loops(
    batch.SECTION,
    (batch.OURS, batch.LIMIT, batch.TCP),
    (Goal("busy host: batches: at least level with a raw unix socket", "rate", batch.OURS, than=batch.LIMIT),),
)
