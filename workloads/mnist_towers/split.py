"""How a batch is divided among towers. It must not import NumPy: the command line reads the settings, which ask it."""

from collections.abc import Sequence

__all__ = ["sizes"]


def sizes(batch: int, parts: Sequence[int]) -> tuple[int, ...]:
    """Return how many of `batch` samples each tower gets, in proportion to `parts`: largest remainders, first first.

    Raises ValueError if one would get none: the mean of no sample is nothing.
    """
    whole = sum(parts)
    dealt = [batch * part // whole for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda tower: -(batch * parts[tower] % whole))
    for tower in by_remainder[: batch - sum(dealt)]:
        dealt[tower] += 1
    if min(dealt) < 1:
        raise ValueError(f"--batch: of {batch} samples, split {', '.join(map(str, parts))}, a tower gets none")
    return tuple(dealt)
