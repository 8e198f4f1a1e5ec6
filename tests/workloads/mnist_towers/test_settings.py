"""The options of mnist_towers, and how batches are divided: what is refused before anything starts."""

import subprocess
import sys

import numpy as np
import pytest

from workloads.mnist_towers.batches import Batches
from workloads.mnist_towers.settings import Settings
from workloads.mnist_towers.split import sizes


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"split": "3;1"}, "--split: '3;1' is no list of whole numbers such as 3,1"),
        ({"split": "3,0"}, "leaves a tower nothing"),
        ({"split": "3,1", "towers": 3}, "is for 2 towers, and --towers says 3"),
        ({"split": "100,1", "batch": 32}, "of 32 samples, split 100, 1, a tower gets none"),
        ({"towers": 8, "batch": 7}, "a tower gets none"),
        ({"style": "mirrored", "variables": "least-loaded"}, "there is a copy on each device, not least-loaded"),
        ({"data": "/no/such/mnist.npz"}, "--data: there is no /no/such/mnist.npz"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings(**settings).check()  # type: ignore[arg-type]


def test_the_command_line_reads_the_settings_without_numpy_and_tensorflow() -> None:
    lines = "import sys, workloads.mnist_towers.settings; print({'numpy', 'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("batch", "parts", "expected"),
    [
        (64, (1, 1), (32, 32)),
        (64, (3, 1), (48, 16)),
        (32, (1, 1, 1), (11, 11, 10)),
        (7, (2, 1), (5, 2)),
        (3, (5,), (3,)),
    ],
)
def test_a_batch_is_divided_in_proportion_and_nothing_is_left(
    batch: int, parts: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert sizes(batch, parts) == expected


def test_each_pass_takes_a_sample_once_at_most_in_an_order_of_its_own() -> None:
    batches = Batches(23, 5, seed=1)
    assert batches.steps == 4
    passes = [np.concatenate([batches.at(number * 4 + step) for step in range(4)]) for number in range(2)]
    assert [len(np.unique(one)) for one in passes] == [20, 20]
    assert passes[0].tolist() != passes[1].tolist()
    for step in (6, 1, 6, 13):
        np.testing.assert_array_equal(Batches(23, 5, seed=1).at(step), batches.at(step))
    with pytest.raises(ValueError, match="--batch: 24 is more than the 23 samples"):
        Batches(23, 24, seed=1)
