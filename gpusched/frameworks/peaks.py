"""What a framework has taken of its devices in a process, as it counts that itself."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Peaks"]


class Peaks(NamedTuple):
    """The most at any one time, in bytes, summed over the devices; None where the framework does not count it."""

    allocated: int | None
    """What the program had allocated."""
    pool: int | None
    """What the framework had taken of the devices for that."""

    def highest(self, other: Peaks) -> Peaks:
        """Return the higher of each figure: a program may have set the framework's own back."""
        return Peaks(_higher(self.allocated, other.allocated), _higher(self.pool, other.pool))


def _higher(one: int | None, other: int | None) -> int | None:
    return max((amount for amount in (one, other) if amount is not None), default=None)
