"""The weights of the original's network, from one process to many, on a busy host."""

from typing import Final

from bench.busy import beside_busy_loops
from bench.section import Section
from bench.sections import weights

__all__ = ["SECTION"]

SECTION: Final[Section] = beside_busy_loops(weights.SECTION, (weights.OURS, weights.FILE, weights.LIMIT, weights.TCP))
