"""What is said and refused of devices, without any: nothing here starts TensorFlow's."""

import pytest

from workloads.mnist_towers.devices import Devices, check_number
from workloads.mnist_towers.learner import tell_where

TWO = Devices("/device:CPU:0", ("/device:GPU:0", "/device:GPU:1"))
ON_0, ON_1, ON_CPU = (f"/job:localhost/replica:0/task:0/device:{name}" for name in ("GPU:0", "GPU:1", "CPU:0"))


def test_more_towers_than_gpus_are_refused_and_idle_gpus_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="3 towers need as many GPUs, and this process has 2"):
        check_number(3, 2)
    for wanted, gpus in ((0, 8), (8, 8), (3, 0), (0, 0)):
        check_number(wanted, gpus)
    assert capsys.readouterr().err == ""
    check_number(2, 8)
    assert "2 towers leave 6 of 8 GPUs idle, which nobody else gets" in capsys.readouterr().err


@pytest.mark.parametrize(
    "where",
    [
        {"hidden/kernel": (ON_CPU,), "gradients": (ON_0, ON_CPU)},
        {"hidden/kernel": (ON_0, ON_1), "hidden/bias": (ON_0, ON_CPU)},
    ],
)
def test_a_tower_that_is_elsewhere_ends_the_run(where: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="the towers were to compute on"):
        tell_where(where, TWO)


@pytest.mark.parametrize(
    "where", [{"hidden/kernel": (ON_CPU,), "gradients": (ON_0, ON_1)}, {"hidden/kernel": (ON_0, ON_1)}]
)
def test_towers_that_are_where_they_should_be_are_told(
    where: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    tell_where(where, TWO)
    assert "GPU:0, GPU:1" in capsys.readouterr().out
