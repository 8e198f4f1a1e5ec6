"""What towers compute and where: against one device, with four logical CPU devices in processes of their own.

Few tests, each with a process: what they share would be computed again in each of the processes that run tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.launched import WHOLE_TEST_S

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(1200)  # a start of TensorFlow and some twenty traces, perhaps on a busy machine

NAMES = [f"{layer}/{weight}" for layer in ("strokes", "shapes", "hidden", "logits") for weight in ("kernel", "bias")]


def measured(what: str) -> Any:
    """What measure.py prints. GPUs are hidden from it: its towers are logical CPU devices."""
    words = [sys.executable, "-m", "tests.workloads.mnist_towers.measure", what]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=WHOLE_TEST_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_each_tower_computes_on_its_own_device_and_averaged_gradients_are_those_of_the_joined_batch() -> None:
    found = measured("cases")
    assert len(found) == 9
    (loss, _) = found["towers, equal"]["losses"]
    for case, of_case in found.items():
        assert of_case["gradient"] < 1e-5, case
        assert of_case["step"] < 1e-4, f"{case}: weights are rounded after the step"
        assert of_case["losses"] == pytest.approx([loss, loss], rel=1e-5), case
        assert of_case["losses"][0] == pytest.approx(of_case["losses"][1], rel=1e-6), case
        towers = 3 if case.endswith("three") else 2
        assert [set(of_tower) for of_tower in of_case["results"]] == [{f"CPU:{1 + i}"} for i in range(towers)], case
        assert all(len(of_tower) >= 4 for of_tower in of_case["results"]), "a loss and gradients, or four layers"
    variables_are_where_the_placers_say(found)


def variables_are_where_the_placers_say(found: Any) -> None:
    where = {case: of_case["where"] for case, of_case in found.items()}
    on_the_host = {name: ["CPU:0"] for name in NAMES} | {"gradients": ["CPU:1", "CPU:2"]}
    assert where["towers, unequal"] == on_the_host
    in_turn = [["CPU:1"], ["CPU:2"]] * 4
    assert [where["towers, round-robin"][name] for name in NAMES] == in_turn
    held = {"CPU:1": 0, "CPU:2": 0}
    for name in NAMES:
        assert where["towers, least-loaded"][name] == [min(held, key=lambda device: held[device])]
        held[where["towers, least-loaded"][name][0]] += found["towers, least-loaded"]["bytes"][name]
    assert [where["towers, least-loaded"][name] for name in NAMES] != in_turn
    for case in ("towers, mirrored", "mirrored, unequal"):
        assert {name: where[case][name] for name in NAMES} == {name: ["CPU:1", "CPU:2"] for name in NAMES}


def test_one_seed_gives_one_curve_bit_for_bit_and_a_device_that_is_not_there_is_an_error() -> None:
    found = measured("curves")
    for style in ("towers", "mirrored"):
        one, other = found["losses"][style]
        assert one == other
        assert one[-1] < one[0]
    assert found["devices"] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert (found["soft"], found["misplaced"]) == (False, "InvalidArgumentError")
