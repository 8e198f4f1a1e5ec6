"""The digits: what is in them."""

import hashlib
from pathlib import Path

import numpy as np

from workloads.common import digits


def test_digits_are_the_same_each_time_and_none_is_both_learnt_and_tested() -> None:
    train, test = digits.load()
    assert (train.images.shape, test.images.shape) == ((1437, 64), (360, 64))
    assert [train.images.dtype.name, train.labels.dtype.name] == ["float32", "int64"]
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert set(test.labels.tolist()) == set(range(10))
    both = np.concatenate([train.images, test.images])
    assert len(np.unique(both, axis=0)) == 1797
    np.testing.assert_array_equal(digits.load()[0].images, train.images)


def test_digits_are_those_of_scikit_learn() -> None:
    found = hashlib.sha256(Path(digits.__file__).with_name("digits.csv.gz").read_bytes()).hexdigest()
    assert found == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22", (
        "the file of scikit-learn 1.9.1, sklearn/datasets/data/digits.csv.gz"
    )
