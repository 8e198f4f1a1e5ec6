"""What processes use of a device: the samples of NVML between two readings of one probe, and what 0 and None mean."""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.model.device import DeviceProcess
from gpusched.probe.nvml_usage import Sample, latest, not_ahead, with_use
from tests.probe.test_nvml import read
from tests.stand_in.library import EIGHT_A100, FOUR_V100, StandIn, StandInHost

TWO: Final = "gpus 2\nprocess 0 C 11 100\nprocess 0 G 12 100\nprocess 1 C 13 100\n"
BUSY: Final = f"{TWO}set * util 60\n"
FIRST: Final = "sample 0 11 1000 90\n"
READINGS: Final = """
import json, os, sys, pynvml
from gpusched.probe.nvml import NvmlProbe
calls = []
ask = pynvml.nvmlDeviceGetProcessUtilization
pynvml.nvmlDeviceGetProcessUtilization = lambda handle, since: calls.append(since) or ask(handle, since)
probe = NvmlProbe(float(os.environ["GPUSCHED_DRIVER_PATIENCE"]))
path = os.environ["NVML_STAND_IN"]
use, devices = [], []
for number, scenario in enumerate(json.loads(sys.argv[1])):
    with open(path + ".new", "w") as file:
        file.write(scenario)
    os.replace(path + ".new", path)
    devices = probe.read().devices
    use.append({each.pid: each.sm_percent for device in devices for each in device.processes})
print(json.dumps({"use": use, "calls": calls, "health": [device.health for device in devices]}))
"""


def readings(host: StandInHost, *scenarios: str) -> Any:
    """Read the scenarios one after the other with one probe: the use by pid of each reading, and what was asked."""
    return host.json(["-c", READINGS, json.dumps(scenarios)])


def use(stand_in: StandIn, *scenarios: str) -> list[dict[str, int | None]]:
    found: list[dict[str, int | None]] = readings(stand_in.host(scenarios[0]), *scenarios)["use"]
    return found


def test_the_first_reading_knows_nothing_and_the_second_what_was_between(stand_in: StandIn) -> None:
    later = "sample 0 11 2000 30\nsample 0 11 3000 40\nsample 0 12 2500 5\n"
    first, second, third = use(stand_in, BUSY + FIRST, BUSY + FIRST + later, TWO + FIRST + later)
    assert first == {"11": None, "12": None, "13": None}
    assert second == {"11": 35, "12": 5, "13": None}
    assert third == {"11": 0, "12": 0, "13": 0}


def test_a_process_without_a_sample_beside_one_that_has_some_did_nothing(stand_in: StandIn) -> None:
    assert use(stand_in, BUSY, BUSY + FIRST)[1] == {"11": 90, "12": 0, "13": None}


@pytest.mark.parametrize(
    ("doubt", "expected"),
    [
        ("sample 0 99 2000 50\n", {"11": None, "12": None}),  # of a process that is not listed
        ("sample 0 11 2000 4294967295\n", {"11": None, "12": None}),
        ("sample 0 11 2000 20\nsample 0 77 2000 101\n", {"11": 20, "12": None}),
        ("sample 0 11 2000 20\nprocess 0 M 14 5\n", {"11": 20, "12": None, "14": None}),
        ("set 0 util -1\n", {"11": None, "12": None}),
        ("set 0 stale 1\n", {"11": None, "12": None}),  # only the old sample comes, once more
    ],
    ids=["stranger", "impossible", "impossible-stranger", "mps", "no-utilisation", "stale"],
)
def test_where_there_is_doubt_it_is_unknown(stand_in: StandIn, doubt: str, expected: dict[str, int | None]) -> None:
    second = use(stand_in, BUSY + FIRST, BUSY + FIRST + doubt)[1]
    assert second == expected | {"13": None}


@pytest.mark.parametrize("code", [3, 4, 7, 13, 999])
def test_a_driver_that_does_not_report_it_or_fails_leaves_it_unknown(stand_in: StandIn, code: int) -> None:
    fault = f"fault nvmlDeviceGetProcessUtilization 0 {code}\n"
    found = readings(stand_in.host(TWO), TWO + FIRST, TWO + fault, TWO)
    assert [each["11"] for each in found["use"]] == [None, None, 0]
    assert [each["13"] for each in found["use"]] == [None, 0, 0]
    assert found["health"] == ["ok", "ok"]


def test_an_answer_of_success_without_samples_is_none_found(stand_in: StandIn) -> None:
    """The binding raises it as an error with the code 0, because it only expects that there is no room."""
    code = """
import json
from gpusched.probe.nvml_fields import asked
from gpusched.probe.nvml_usage import samples_since
import pynvml
pynvml.nvmlInit()
def ask(call, *arguments, answers):
    return asked(pynvml, call, *arguments, answers=answers)
pynvml._nvmlGetFunctionPointer_cache["nvmlDeviceGetProcessUtilization"] = lambda *arguments: 0
print(json.dumps(samples_since(pynvml.nvmlDeviceGetHandleByIndex(0), ask, 7)))
"""
    assert stand_in.host(TWO).json(["-c", code]) == []


def test_each_reading_makes_one_call_a_device_from_where_the_one_before_ended(stand_in: StandIn) -> None:
    later = f"{FIRST}sample 0 12 700 5\nsample 1 13 2000 8\n"
    found = readings(stand_in.host(TWO), TWO, BUSY + later, BUSY + later)
    assert sorted(found["calls"]) == [0, 0, 0, 0, 1000, 2000]


def test_a_time_stamp_after_now_is_forgotten(stand_in: StandIn) -> None:
    ahead = f"{BUSY}sample 0 11 {1 << 60} 50\n"
    found = readings(stand_in.host(BUSY), BUSY, ahead, BUSY + FIRST, BUSY + FIRST)
    assert [each["11"] for each in found["use"]] == [None, 50, None, None]


def test_with_mig_nobody_is_asked(stand_in: StandIn) -> None:
    mig = f"{EIGHT_A100}process 0 C 1 400\nprocess 0:2 C 2 2900\nprocess 5 C 3 9\n"
    found = readings(stand_in.host(mig), mig, mig + "sample 5 3 1000 98\n")
    assert found["use"][1] == {"1": None, "2": None, "3": 98}
    assert len(found["calls"]) == 2 * 6


def test_a_call_that_never_returns_costs_no_other_field(stand_in: StandIn) -> None:
    host = stand_in.host(
        f"{FOUR_V100}process 1 C 7 9\nfault nvmlDeviceGetProcessUtilization 1 sleep 600\n", driver_patience_s=4
    )
    device = read(host)["devices"][1]
    assert (device["health"], device["ecc_errors"], device["energy_j"]) == ("error", 2, 7654)
    assert [(each["pid"], each["sm_percent"]) for each in device["processes"]] == [(7, None)]


def test_energy_is_in_whole_joules_and_unknown_where_it_is_not_counted(stand_in: StandIn) -> None:
    scenario = f"{EIGHT_A100}set 1 energy 12345678901234\nset 2 energy -1\nset 3 energy 999\n"
    devices = read(stand_in.host(scenario))["devices"]
    told = {(device["index"], device["mig_index"]): device["energy_j"] for device in devices}
    assert [told[index, None] for index in range(4)] == [7654, 12345678901, None, 0]
    assert told[0, 1] is None


PIDS: Final = st.integers(1, 6)
SAMPLES: Final = st.lists(st.builds(Sample, PIDS, st.integers(1, 99), st.integers(0, 110)), max_size=8)
LISTED: Final = st.sets(PIDS, max_size=6).map(lambda pids: [DeviceProcess(pid=pid) for pid in sorted(pids)])


@given(LISTED, SAMPLES, st.none() | st.integers(0, 100), st.booleans())
def test_0_is_never_given_to_a_process_that_may_have_been_active(
    listed: Sequence[DeviceProcess], samples: list[Sample], percent: int | None, mps: bool
) -> None:
    after = with_use(listed, samples, percent, mps=mps)
    assert [each.pid for each in after] == [each.pid for each in listed]
    pids = {each.pid for each in listed}
    active = {one.pid for one in samples if one.sm_percent}
    doubt = bool(active - pids) or any(one.sm_percent > 100 for one in samples) or (mps and bool(active))
    for each in after:
        own = [one.sm_percent for one in samples if one.pid == each.pid]
        if own and max(own) <= 100:
            assert each.sm_percent is not None
            assert min(own) <= each.sm_percent <= max(own)
            assert (each.sm_percent == 0) == (max(own) == 0)
        elif own or doubt:
            assert each.sm_percent is None
        else:
            assert each.sm_percent == (0 if active or percent == 0 else None)


@given(SAMPLES, st.none() | st.integers(0, 200), st.integers(0, 200))
def test_what_was_seen_only_grows_and_is_not_of_impossible_samples(
    samples: list[Sample], seen_us: int | None, now_us: int
) -> None:
    after = latest(samples, seen_us)
    assert after >= (seen_us or 0)
    assert all(after >= one.time_us for one in samples if one.sm_percent <= 100)
    assert not_ahead(after, now_us) == after
    assert not_ahead(now_us + 1_000_001, now_us) is None


def peaks(stand_in: StandIn, scenario: str) -> dict[int, int | None]:
    devices = read(stand_in.host(scenario))["devices"]
    return {each["pid"]: each["peak_mib"] for device in devices for each in device["processes"]}


def test_where_accounting_is_on_a_process_has_the_most_that_it_has_held(stand_in: StandIn) -> None:
    accounts = "accounted 0 11 900\naccounted 0 12 -1\naccounted 1 13 900\n"
    assert peaks(stand_in, f"{TWO}set 0 accounting 1\n{accounts}") == {11: 900, 12: None, 13: None}
    assert peaks(stand_in, TWO + accounts) == {11: None, 12: None, 13: None}


def test_what_an_earlier_process_of_the_same_pid_has_held_is_not_taken_for_this_ones(stand_in: StandIn) -> None:
    accounts = "ended 0 11 900\naccounted 0 12 500\n"
    assert peaks(stand_in, f"{TWO}set 0 accounting 1\n{accounts}") == {11: None, 12: 500, 13: None}


@pytest.mark.parametrize("call", ["nvmlDeviceGetAccountingMode", "nvmlDeviceGetAccountingStats"])
def test_a_driver_without_accounting_leaves_the_rest_as_it_is(stand_in: StandIn, call: str) -> None:
    scenario = f"{TWO}set * accounting 1\naccounted 0 11 900\nfault {call} 0 3\n"
    (first, _) = read(stand_in.host(scenario))["devices"]
    assert first["health"] == "ok"
    assert [(each["memory_mib"], each["peak_mib"]) for each in first["processes"]] == [(100, None)] * 2
