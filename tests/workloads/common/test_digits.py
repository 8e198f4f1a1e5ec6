"""The digits: what is in them, and what is said where they are missing."""

from importlib.util import find_spec

import numpy as np
import pytest

from workloads.averaging.settings import Settings
from workloads.common import digits


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_digits_are_the_same_each_time_and_none_is_both_learnt_and_tested() -> None:
    train, test = digits.load()
    assert (train.images.shape, test.images.shape) == ((1437, 64), (360, 64))
    assert [train.images.dtype.name, train.labels.dtype.name] == ["float32", "int64"]
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert set(test.labels.tolist()) == set(range(10))
    both = np.concatenate([train.images, test.images])
    assert len(np.unique(both, axis=0)) == 1797
    np.testing.assert_array_equal(digits.load()[0].images, train.images)


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    train, test = digits.load()
    images, labels = load_digits(return_X_y=True)
    ours = [(*image, label) for part in (train, test) for image, label in zip(part.images, part.labels, strict=True)]
    assert sorted(ours) == sorted((*image, label) for image, label in zip(images / 16, labels, strict=True))


def test_without_scikit_learn_a_launch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="scikit-learn, which is not installed"):
        Settings(task="digits").check()
    Settings(task="line").check()
