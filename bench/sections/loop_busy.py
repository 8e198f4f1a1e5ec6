"""The whole loop on a busy host."""

from typing import Final

from bench.busy import beside_busy_loops
from bench.section import Section
from bench.sections import loop

__all__ = ["SECTION"]

SECTION: Final[Section] = beside_busy_loops(loop.STEPS_ONLY, [row.name for row in loop.STEPS_ONLY.rows], slower=1.0)
