"""Whether something grows: a robust slope on the second half of a soak, beyond what keeping every job explains.

Jobs are kept for good, so files, the database and the daemon's memory may grow with their number, by a bounded amount
for each. The daemon is killed now and then; only samples of one life of it are compared with each other. Samples are
reduced to medians of blocks; a quantity grows if the median of the slopes between blocks (Theil-Sen) makes more than
the tolerance over the span, and nearly all pairs of blocks that differ rise.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.soak.measure import Sample

__all__ = ["QUANTITIES", "Quantity", "Verdict", "judge"]

WARM_UP_S: Final = 300.0
BLOCK_S: Final = 60.0
MOST_RISING: Final = 0.8
APART: Final = {True: 30.0, False: 180.0}  # jobs kept, or seconds: closer blocks differ by chance
SHORTEST_S: Final = 1200.0


@dataclass(frozen=True)
class Quantity:
    """What is judged. `tolerance`: how much it may rise over the second half, for each job kept if `per_job`."""

    name: str
    unit: str
    value: Callable[[Sample], float]
    tolerance: float
    per_job: bool = False


QUANTITIES: Final = (
    Quantity("daemon: private memory", "KiB a job kept", lambda one: one.daemon_private, 8.0, per_job=True),
    Quantity("daemon: descriptors", "", lambda one: one.daemon_fds - one.live_jobs, 8),
    Quantity("daemon: threads", "", lambda one: one.daemon_threads, 2),
    Quantity("supervisors and guards: private memory (mean)", "KiB", lambda one: one.steady_private, 512),
    Quantity("supervisors and guards: descriptors (most)", "", lambda one: one.steady_fds, 4),
    Quantity("supervisors and guards: threads (most)", "", lambda one: one.steady_threads, 1),
    Quantity("files in the runtime directory", "", lambda one: one.runtime_files - 2 * one.live_jobs, 12),
    Quantity("files in the lease directory", "", lambda one: one.lease_files - one.live_jobs, 12),
    Quantity("files in the state directory", "a job kept", lambda one: one.state_files, 25.0, per_job=True),
    Quantity("database", "KiB a job kept", lambda one: one.db_kib, 8.0, per_job=True),
)


@dataclass(frozen=True)
class Verdict:
    """`begin`, `end`: medians of the first and the last block; `rise`: over the span, or for each job kept."""

    quantity: Quantity
    begin: float
    end: float
    rise: float
    rising: float
    grows: bool
    judged: bool


def judge(quantity: Quantity, samples: Sequence[Sample]) -> Verdict:
    """Judge one quantity on the second half of the samples."""
    half = [one for one in samples if one.time >= samples[-1].time / 2 and one.daemon] if samples else []
    blocks = [block for life in _lives(samples, half) for block in _blocks(life, quantity)]
    pairs = [
        ((second[2] - first[2]) / max(second[1] - first[1], 1e-9), second[1] - first[1])
        for index, first in enumerate(blocks)
        for second in blocks[index + 1 :]
        if first[0] == second[0] and second[1] - first[1] >= APART[quantity.per_job]
    ]
    if not pairs:
        return Verdict(quantity, 0, 0, 0, 0, grows=False, judged=False)
    slope = statistics.median(slope for slope, _ in pairs)
    moving = [slope for slope, _ in pairs if slope] or [0.0]
    rising = sum(slope > 0 for slope in moving) / len(moving)
    span = 1.0 if quantity.per_job else half[-1].time - half[0].time
    long_enough = samples[-1].time >= SHORTEST_S
    grows = long_enough and rising >= MOST_RISING and slope * span > quantity.tolerance
    return Verdict(quantity, blocks[0][2], blocks[-1][2], slope * span, rising, grows, judged=long_enough)


def _lives(samples: Sequence[Sample], half: Sequence[Sample]) -> list[list[Sample]]:
    """Split by the daemon's pid, each life without its first five minutes."""
    begun: dict[int, float] = {}
    for one in samples:
        begun.setdefault(one.daemon, one.time)
    lives: dict[int, list[Sample]] = defaultdict(list)
    for one in half:
        if one.time - begun[one.daemon] >= WARM_UP_S and one.steady_fds:
            lives[one.daemon].append(one)
    return list(lives.values())


def _blocks(life: Sequence[Sample], quantity: Quantity) -> list[tuple[int, float, float]]:
    """(the daemon's pid, time or jobs kept, value): medians of each minute of a life."""
    blocks: dict[int, list[Sample]] = defaultdict(list)
    for one in life:
        blocks[int(one.time // BLOCK_S)].append(one)
    return [
        (
            life[0].daemon,
            statistics.median(one.kept_jobs if quantity.per_job else one.time for one in block),
            statistics.median(quantity.value(one) for one in block),
        )
        for block in blocks.values()
    ]
