"""The real MNIST, from a file that somebody has: Keras' mnist.npz, or a folder with the four files of its authors.

LeCun, Cortes and Burges, "The MNIST database of handwritten digits": 60,000 digits of 28 x 28 pixels to learn from and
10,000 to test with. Nothing is downloaded here.
"""

import gzip
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workloads.common.digits import Digits

__all__ = ["load"]

_INK: Final = 255.0
_BYTES: Final = 0x08
_IDX: Final = (
    ("train-images-idx3-ubyte.gz", 3),
    ("train-labels-idx1-ubyte.gz", 1),
    ("t10k-images-idx3-ubyte.gz", 3),
    ("t10k-labels-idx1-ubyte.gz", 1),
)
_KERAS: Final = ("x_train", "y_train", "x_test", "y_test")


def load(path: Path) -> tuple[Digits, Digits]:
    """Return what to learn from and what to test with. Raises ValueError for a file that is none of the two forms."""
    try:
        arrays = [_idx(path / name, sides) for name, sides in _IDX] if path.is_dir() else _keras(path)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not MNIST: {error}") from None
    train_images, train_labels, test_images, test_labels = arrays
    if train_images.shape[1:] != test_images.shape[1:]:
        raise ValueError(f"{path} is not MNIST: its images to test with are of another size")
    return _digits(path, train_images, train_labels), _digits(path, test_images, test_labels)


def _keras(path: Path) -> list[NDArray[Any]]:
    with np.load(path, allow_pickle=False) as file:
        return [file[name] for name in _KERAS]


def _idx(path: Path, sides: int) -> NDArray[np.uint8]:
    """Return the array of an idx file: two bytes 0, the kind, the number of sides, each as four bytes, then bytes."""
    data = gzip.decompress(path.read_bytes())
    if data[:4] != bytes([0, 0, _BYTES, sides]):
        raise ValueError(f"{path.name} is no idx file of {sides} sides of bytes")
    start = 4 + 4 * sides
    shape = tuple(int(side) for side in np.frombuffer(data[4:start], ">u4"))
    return np.frombuffer(data[start:], np.uint8).reshape(shape)


def _digits(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> Digits:
    if images.ndim != 3 or images.shape[1] != images.shape[2] or labels.shape != images.shape[:1] or not len(labels):  # noqa: PLR2004 (square images)
        raise ValueError(f"{path} is not MNIST: {images.shape} images and {labels.shape} labels")
    if not 0 <= labels.min() <= labels.max() <= 9:  # noqa: PLR2004 (ten digits)
        raise ValueError(f"{path} is not MNIST: its labels are from {labels.min()} to {labels.max()}")
    flat = images.reshape(len(images), -1).astype(np.float32) / np.float32(_INK)
    return Digits(flat, labels.astype(np.int64))
