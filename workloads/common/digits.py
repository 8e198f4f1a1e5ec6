"""Handwritten digits that need no download: the 1,797 of 8 x 8 pixels that scikit-learn brings along.

A part of the test set of Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["PIXELS", "Digits", "load", "require"]

PIXELS: Final = 64
_INK: Final = 16.0
_TESTED: Final = 360
_SHUFFLED_BY: Final = 1998


class Digits(msgspec.Struct, frozen=True, eq=False):
    """Images float32 [n, 64], row by row, 0 (paper) to 1 (ink), and what they show, int64 [n], 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def require() -> None:
    """Raise ValueError, which says what to install, if the digits are not there."""
    _file()


def load() -> tuple[Digits, Digits]:
    """Return 1,437 digits to learn from and 360 others to test with, shuffled, always the same.

    Raises ValueError as require() does.
    """
    lines = np.loadtxt(_file(), delimiter=",", dtype=np.int64)
    lines = np.random.default_rng(_SHUFFLED_BY).permutation(lines)
    images, labels = (lines[:, :PIXELS] / _INK).astype(np.float32), lines[:, PIXELS]
    return Digits(images[_TESTED:], labels[_TESTED:]), Digits(images[:_TESTED], labels[:_TESTED])


def _file() -> Path:
    """Return the file that sklearn.datasets.load_digits() reads: each process would import it for over a second."""
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        if (path := Path(folder, "datasets", "data", "digits.csv.gz")).is_file():
            return path
    raise ValueError(
        "the digits come with scikit-learn, which is not installed; it is in gpusched's extra `tensorflow`"
    )
