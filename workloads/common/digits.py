"""Handwritten digits that need no download: the 1,797 of 8 x 8 pixels that scikit-learn brings along, in its file.

The test set of Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository
(CC BY 4.0). The file lies here because Keras imports scikit-learn wherever it is installed: seconds in each process.
"""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["PIXELS", "Digits", "load"]

PIXELS: Final = 64
_FILE: Final = Path(__file__).with_name("digits.csv.gz")
_INK: Final = 16.0
_TESTED: Final = 360
_SHUFFLED_BY: Final = 1998


class Digits(msgspec.Struct, frozen=True, eq=False):
    """Images float32 [n, 64], row by row, 0 (paper) to 1 (ink), and what they show, int64 [n], 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> tuple[Digits, Digits]:
    """Return 1,437 digits to learn from and 360 others to test with, shuffled, always the same."""
    lines = np.loadtxt(_FILE, delimiter=",", dtype=np.int64)
    lines = np.random.default_rng(_SHUFFLED_BY).permutation(lines)
    images, labels = (lines[:, :PIXELS] / _INK).astype(np.float32), lines[:, PIXELS]
    return Digits(images[_TESTED:], labels[_TESTED:]), Digits(images[:_TESTED], labels[:_TESTED])
