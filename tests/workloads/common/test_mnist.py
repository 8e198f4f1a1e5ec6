"""The real MNIST in its two forms, each as a small file of that form; and what is neither."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from workloads.common import mnist

CHANCE = np.random.default_rng(0)
IMAGES = CHANCE.integers(0, 256, (7, 28, 28), dtype=np.uint8)
LABELS = CHANCE.integers(0, 10, 7, dtype=np.uint8)


def keras(path: Path, **changed: NDArray[np.generic]) -> Path:
    arrays = {"x_train": IMAGES[:5], "y_train": LABELS[:5], "x_test": IMAGES[5:], "y_test": LABELS[5:]}
    np.savez(path, **(arrays | changed))  # type: ignore[arg-type]
    return path


def idx(path: Path, array: NDArray[np.uint8]) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


def folder(path: Path) -> Path:
    path.mkdir()
    idx(path / "train-images-idx3-ubyte.gz", IMAGES[:5])
    idx(path / "train-labels-idx1-ubyte.gz", LABELS[:5])
    idx(path / "t10k-images-idx3-ubyte.gz", IMAGES[5:])
    idx(path / "t10k-labels-idx1-ubyte.gz", LABELS[5:])
    return path


def test_both_forms_hold_the_same_digits(tmp_path: Path) -> None:
    for path in (keras(tmp_path / "mnist.npz"), folder(tmp_path / "mnist")):
        train, test = mnist.load(path)
        assert (train.images.shape, test.images.shape) == ((5, 784), (2, 784))
        assert [train.images.dtype.name, train.labels.dtype.name] == ["float32", "int64"]
        np.testing.assert_allclose(test.images * 255, IMAGES[5:].reshape(2, 784), rtol=1e-6)
        assert train.labels.tolist() == LABELS[:5].tolist()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"x_train": IMAGES[:4]}, r"\(4, 28, 28\) images and \(5,\) labels"),
        ({"x_train": IMAGES[:5, :, :27], "x_test": IMAGES[5:, :, :27]}, r"\(5, 28, 27\) images"),
        ({"x_test": IMAGES[5:, :8, :8]}, "of another size"),
        ({"y_test": np.array([3, 10])}, "its labels are from 3 to 10"),
    ],
)
def test_what_is_no_mnist_is_refused(tmp_path: Path, changed: dict[str, NDArray[np.generic]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mnist.load(keras(tmp_path / "mnist.npz", **changed))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_text("mnist")
    np.savez(tmp_path / "other.npz", x_train=IMAGES)
    cut = folder(tmp_path / "cut")
    (cut / "t10k-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8b")
    swapped = folder(tmp_path / "swapped")
    idx(swapped / "train-images-idx3-ubyte.gz", LABELS)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "mnist.npz", tmp_path / "other.npz", cut, swapped, tmp_path / "empty"):
        with pytest.raises(ValueError, match="is not MNIST"):
            mnist.load(path)
