"""Which part of a run is over."""

__all__ = ["part_done"]


def part_done(*limits: tuple[float, float]) -> float | None:
    """Return it, 0 to 1, by the limit that is nearest; None without one.

    A limit is how much there is to be and how much there is, in the same unit; 0 to be means that there is none.
    """
    parts = [have / most for most, have in limits if most > 0]
    return min(max(parts), 1.0) if parts else None
