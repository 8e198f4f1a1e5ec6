"""What towers compute and where: against one device, with four logical CPU devices in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(120)  # a start of TensorFlow and some twenty traces, perhaps on a busy machine

CASES = (
    *("towers, equal", "towers, unequal", "towers, three", "towers, round-robin", "towers, least-loaded"),
    *("towers, mirrored", "mirrored, equal", "mirrored, unequal", "mirrored, three"),
)
NAMES = [f"{layer}/{weight}" for layer in ("strokes", "shapes", "hidden", "logits") for weight in ("kernel", "bias")]


@pytest.fixture(scope="module")
def measured() -> Any:
    """What measure.py prints."""
    words = [sys.executable, "-m", "tests.workloads.mnist_towers.measure"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_averaged_gradients_are_those_of_the_joined_batch_on_one_device(measured: Any, case: str) -> None:
    assert measured[case]["gradient"] < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_a_step_goes_down_that_gradient_and_tells_the_mean_loss(measured: Any, case: str) -> None:
    assert measured[case]["step"] < 1e-4, "weights are rounded after the step"
    told, again = measured[case]["losses"]
    assert told == pytest.approx(again, rel=1e-6)
    assert told == pytest.approx(measured["towers, equal"]["losses"][0], rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_each_tower_computes_on_its_own_device(measured: Any, case: str) -> None:
    towers = 3 if case.endswith("three") else 2
    found = measured[case]["results"]
    assert [set(of_tower) for of_tower in found] == [{f"CPU:{1 + i}"} for i in range(towers)]
    assert all(len(of_tower) >= 4 for of_tower in found), "a loss and gradients, or the products of four layers"


def test_shared_variables_are_on_the_host(measured: Any) -> None:
    assert measured["towers, unequal"]["where"] == {name: ["CPU:0"] for name in NAMES} | {
        "gradients": ["CPU:1", "CPU:2"]
    }


def test_round_robin_places_one_variable_after_the_other(measured: Any) -> None:
    where = measured["towers, round-robin"]["where"]
    assert [where[name] for name in NAMES] == [["CPU:1"], ["CPU:2"]] * 4


def test_least_loaded_places_each_variable_where_the_fewest_bytes_are(measured: Any) -> None:
    where, held = measured["towers, least-loaded"]["where"], {"CPU:1": 0, "CPU:2": 0}
    for name in NAMES:
        assert where[name] == [min(held, key=lambda device: held[device])]
        held[where[name][0]] += measured["towers, least-loaded"]["bytes"][name]
    assert [where[name] for name in NAMES] != [["CPU:1"], ["CPU:2"]] * 4


@pytest.mark.parametrize("case", ["towers, mirrored", "mirrored, unequal"])
def test_mirrored_variables_have_a_copy_on_each_device(measured: Any, case: str) -> None:
    where = measured[case]["where"]
    assert {name: where[name] for name in NAMES} == {name: ["CPU:1", "CPU:2"] for name in NAMES}


@pytest.mark.parametrize("style", ["towers", "mirrored"])
def test_one_seed_gives_one_curve_bit_for_bit(measured: Any, style: str) -> None:
    one, other = measured["losses"][style]
    assert one == other
    assert one[-1] < one[0]


def test_without_soft_placement_a_device_that_is_not_there_is_an_error(measured: Any) -> None:
    assert measured["devices"] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert (measured["soft"], measured["misplaced"]) == (False, "InvalidArgumentError")
