"""NVML of a host, as real pynvml reads it from a real library: every field, every fault, and always in time."""

import json
import os
from typing import Any

import pytest

from tests.stand_in.library import EIGHT_A100, FOUR_V100, MIXED, SIXTY_FOUR, StandIn, StandInHost

READ = """
import json, msgspec, sys, time
from gpusched.probe.base import read_inventory
inventory, _ = read_inventory(None)
print(json.dumps(msgspec.to_builtins(inventory)))
"""
PYNVML = """
import json, pynvml as n
def ask(call, *arguments):
    try:
        return getattr(n, call)(*arguments)
    except n.NVMLError:
        return None
n.nvmlInit()
rows = []
for index in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(index)
    memory = ask("nvmlDeviceGetMemoryInfo", handle, n.nvmlMemory_v2)
    rates, mig = ask("nvmlDeviceGetUtilizationRates", handle), ask("nvmlDeviceGetMigMode", handle)
    power, limit = ask("nvmlDeviceGetPowerUsage", handle), ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    persistence = ask("nvmlDeviceGetPersistenceMode", handle)
    rows.append({
        "index": index, "uuid": n.nvmlDeviceGetUUID(handle), "name": n.nvmlDeviceGetName(handle),
        "memory_total_mib": memory and memory.total // 2**20, "memory_used_mib": memory and memory.used // 2**20,
        "memory_reserved_mib": memory and memory.reserved // 2**20,
        "utilization_percent": rates and rates.gpu, "temperature_c": ask("nvmlDeviceGetTemperature", handle, 0),
        "power_w": power and power // 1000, "power_limit_w": limit and limit // 1000,
        "fan_percent": ask("nvmlDeviceGetFanSpeed", handle),
        "ecc_errors": ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "compute_mode": {0: "default", 3: "exclusive_process"}[n.nvmlDeviceGetComputeMode(handle)],
        "persistence_mode": persistence if persistence is None else bool(persistence),
        "mig_mode": mig and mig[0] == 1, "bus_id": n.nvmlDeviceGetPciInfo(handle).busId,
    })
print(json.dumps(rows))
"""


def read(host: StandInHost) -> Any:
    return host.json(["-c", READ])


def physical(inventory: Any) -> list[Any]:
    return [device for device in inventory["devices"] if device["mig_index"] is None]


@pytest.mark.parametrize("scenario", [FOUR_V100, EIGHT_A100, MIXED, SIXTY_FOUR], ids=["v100", "a100", "mixed", "64"])
def test_every_field_is_what_pynvml_tells(stand_in: StandIn, scenario: str) -> None:
    host = stand_in.host(scenario)
    devices = physical(read(host))
    expected = host.json(["-c", PYNVML])
    assert [{key: device[key] for key in expected[0]} for device in devices] == expected
    assert all(device["health"] == "ok" for device in devices)


def test_driver_and_cuda_are_told(stand_in: StandIn) -> None:
    inventory = read(stand_in.host(EIGHT_A100))
    assert (inventory["source"], inventory["driver_version"], inventory["cuda_version"]) == (
        "nvml",
        "550.54.15",
        "12.4",
    )
    assert inventory["problem"] is None
    assert inventory["cpus"]


def test_mig_instances_follow_their_parent_as_devices(stand_in: StandIn) -> None:
    devices = read(stand_in.host(EIGHT_A100 + "process 0 C 1 400\nprocess 0:2 C 2 2900\nset 0 cpus 1\n"))["devices"]
    assert [(d["index"], d["mig_index"]) for d in devices[:5]] == [(0, None), (0, 0), (0, 1), (0, 2), (1, None)]
    parent, first, _, third = devices[:4]
    assert (parent["mig_mode"], parent["utilization_percent"], devices[4]["mig_mode"]) == (True, None, False)
    assert first["uuid"].startswith("MIG-")
    assert (first["memory_total_mib"], first["bus_id"], first["cpus"]) == (19968, parent["bus_id"], parent["cpus"])
    assert [each["pid"] for each in parent["processes"]] == [1]
    assert [(each["pid"], each["memory_mib"]) for each in third["processes"]] == [(2, 2900)]


def test_process_lists_are_merged_to_one_entry_a_pid(stand_in: StandIn) -> None:
    lists = "process 0 C 11 100\nprocess 0 G 11 300\nprocess 0 G 12 5\nprocess 0 M 13 70\nprocess 0 C 14 -1\n"
    processes = read(stand_in.host("gpus 2\n" + lists))["devices"][0]["processes"]
    assert [(each["pid"], each["kind"], each["memory_mib"]) for each in processes] == [
        (11, "C+G", 300),
        (12, "G", 5),
        (13, "C", 70),
        (14, "C", None),
    ]


def test_a_process_that_can_be_seen_has_user_and_command(stand_in: StandIn) -> None:
    script = READ.replace("began =", "import os; own = os.getpid()\nbegan =")
    host = stand_in.host("gpus 1\nprocess 0 C 1 10\nprocess 0 C 4194000 10\n")
    seen, gone = host.json(["-c", script])["devices"][0]["processes"]
    assert seen["user"]
    assert seen["command"]
    assert (gone["user"], gone["command"]) == (None, None)


def test_a_library_of_2019_is_read_by_its_older_calls(stand_in: StandIn) -> None:
    scenario = FOUR_V100 + "driver 418.87\ncuda 10010\nset 1 used 900\nset 1 reserved 60\nprocess 1 C 1 812\n"
    inventory = read(stand_in.host(scenario, age="r418"))
    device = inventory["devices"][1]
    assert (device["memory_total_mib"], device["memory_used_mib"], device["memory_reserved_mib"]) == (16160, 960, None)
    assert [(each["pid"], each["memory_mib"]) for each in device["processes"]] == [(1, 812)]
    assert (device["mig_mode"], device["health"], device["ecc_errors"]) == (None, "ok", 2)


def test_cpus_near_a_device_are_only_those_that_may_be_used(stand_in: StandIn) -> None:
    inventory = read(stand_in.host("gpus 2\nset 0 cpus 1\nset 1 cpus -1\n"))
    near, unknown = inventory["devices"]
    assert near["cpus"] == [cpu for cpu in inventory["cpus"] if cpu == 0]
    assert unknown["cpus"] == []


FIELDS = {
    "nvmlDeviceGetMemoryInfo_v2": ["memory_reserved_mib"],
    "nvmlDeviceGetUtilizationRates": ["utilization_percent"],
    "nvmlDeviceGetTemperature": ["temperature_c"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetEnforcedPowerLimit": ["power_limit_w"],
    "nvmlDeviceGetFanSpeed": ["fan_percent"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["slowed_by"],
    "nvmlDeviceGetTotalEnergyConsumption": ["energy_j"],
    "nvmlDeviceGetPerformanceState": ["performance_state"],
    "nvmlDeviceGetComputeMode": ["compute_mode"],
    "nvmlDeviceGetPersistenceMode": ["persistence_mode"],
    "nvmlDeviceGetMigMode": ["mig_mode"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_errors"],
    "nvmlDeviceGetPciInfo_v3": ["bus_id"],
    "nvmlDeviceGetCpuAffinity": ["cpus"],
}
OLDER_NAMES = {"nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons"}


@pytest.mark.parametrize("code", [3, 4, 13, 999], ids=["not-supported", "no-permission", "no-such-call", "unknown"])
def test_a_field_that_is_refused_is_null_and_the_others_stand(stand_in: StandIn, code: int) -> None:
    scenario = f"gpus {len(FIELDS)}\nset * fan 30\nset * mig 0\nset * cpus 1\nset * clocks 4\n"
    calls = dict(enumerate(FIELDS))
    faults = "".join(
        f"fault {name} {index} {code}\n"
        for index, call in calls.items()
        for name in (call, OLDER_NAMES.get(call, call))
    )
    whole = read(stand_in.host(scenario))["devices"]
    devices = read(stand_in.host(scenario + faults))["devices"]
    for index, call in calls.items():
        expected = whole[index] | {field: [] if field == "cpus" else None for field in FIELDS[call]}
        assert devices[index] == expected, call


@pytest.mark.parametrize(
    ("fault", "health", "words"),
    [
        ("nvmlDeviceGetTemperature 1 15", "lost", "fallen off the bus"),
        ("nvmlDeviceGetMemoryInfo_v2 1 16", "error", "reset"),
        ("nvmlDeviceGetHandleByIndex_v2 1 15", "lost", "fallen off the bus"),
        ("nvmlDeviceGetHandleByIndex_v2 1 4", "error", "permission"),
        ("nvmlDeviceGetHandleByIndex_v2 1 999", "error", "999"),
        ("* 1 15", "lost", "fallen off the bus"),
    ],
)
def test_a_device_at_fault_keeps_its_row_and_spares_the_others(
    stand_in: StandIn, fault: str, health: str, words: str
) -> None:
    devices = read(stand_in.host(f"{FOUR_V100}fault {fault}\n"))["devices"]
    assert [device["health"] for device in devices] == ["ok", health, "ok", "ok"]
    assert words in devices[1]["problem"]
    assert devices[1]["index"] == 1
    assert len({device["uuid"] for device in devices}) == 4


def test_a_lost_device_keeps_the_fields_it_still_tells(stand_in: StandIn) -> None:
    device = read(stand_in.host(f"{FOUR_V100}fault nvmlDeviceGetPowerUsage 1 15\n"))["devices"][1]
    assert (device["health"], device["power_w"], device["temperature_c"]) == ("lost", None, 63)


@pytest.mark.parametrize(
    ("code", "source", "words"),
    [
        (9, "cpu", "not loaded"),
        (18, "nvml", "driver and library do not match"),
        (4, "nvml", "permission"),
        (17, "nvml", "operating system"),
        (999, "nvml", "999"),
    ],
)
def test_a_driver_that_does_not_start_is_told(stand_in: StandIn, code: int, source: str, words: str) -> None:
    inventory = read(stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * {code}\n"))
    assert (inventory["source"], inventory["devices"]) == (source, [])
    assert words in inventory["problem"]


def test_without_the_library_this_is_a_host_without_devices(stand_in: StandIn) -> None:
    host = stand_in.host("")
    inventory = host.json(["-c", READ], env={"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]})
    assert (inventory["source"], inventory["devices"], inventory["problem"]) == ("cpu", [], None)


def test_a_driver_without_devices_is_a_host_without_devices(stand_in: StandIn) -> None:
    inventory = read(stand_in.host("gpus 0\n"))
    assert (inventory["source"], inventory["devices"], inventory["problem"]) == ("cpu", [], None)


def test_no_permission_for_any_device_is_a_problem_of_the_host(stand_in: StandIn) -> None:
    inventory = read(stand_in.host(f"{FOUR_V100}fault nvmlDeviceGetHandleByIndex_v2 * 4\n"))
    assert "no permission" in inventory["problem"]
    assert [device["health"] for device in inventory["devices"]] == ["error"] * 4


def test_a_call_that_never_returns_costs_the_deadline_and_only_its_own_device(stand_in: StandIn) -> None:
    host = stand_in.host(f"{SIXTY_FOUR}fault nvmlDeviceGetPowerUsage 7 sleep 600\n", driver_patience_s=8)
    inventory = read(host)  # a hang would last as long as the stuck call, and longer than our patience
    devices = inventory["devices"]
    assert [device["index"] for device in devices if device["health"] != "ok"] == [7]
    assert devices[7]["problem"] == "NVML did not answer within 8 s"
    assert (devices[7]["memory_used_mib"], devices[7]["temperature_c"], devices[7]["power_w"]) == (700, 37, None)


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion"])
def test_a_start_that_never_returns_is_told_in_time(stand_in: StandIn, call: str) -> None:
    inventory = read(stand_in.host(f"{FOUR_V100}fault {call} * sleep 600\n", driver_patience_s=0.5))
    assert (inventory["source"], inventory["problem"]) == ("nvml", "NVML did not answer within 0.5 s")


def test_a_driver_that_is_slow_is_waited_for_as_long_as_the_setting_says(stand_in: StandIn) -> None:
    slow = (
        f"{FOUR_V100}fault nvmlInitWithFlags * sleep 3\n"  # as without persistence mode, where the first call wakes it
    )
    assert read(stand_in.host(slow, driver_patience_s=0.5))["problem"] == "NVML did not answer within 0.5 s"

    inventory = read(stand_in.host(slow))

    assert (inventory["problem"], len(inventory["devices"])) == (None, 4)


AGAIN = """
import json, threading, time
import pynvml  # the deadline is for the driver alone
from gpusched.probe.nvml import NvmlProbe
probe = NvmlProbe(deadline_s=2)
told = []
until = time.monotonic() + 120
while time.monotonic() < until and (not told or told[-1][1] != "ok"):
    device = probe.read().devices[1]
    told.append([device.uuid, device.health, sum(each.name == "nvml-device-1" for each in threading.enumerate())])
    time.sleep(0.1)
print(json.dumps(told))
"""


def test_a_probe_that_stays_open_asks_a_stuck_device_again_only_when_the_call_has_returned(stand_in: StandIn) -> None:
    host = stand_in.host(f"{FOUR_V100}fault nvmlDeviceGetMemoryInfo_v2 1 sleep 6\n")
    *stuck, (uuid, health, _) = host.json(["-c", AGAIN])
    assert len(stuck) >= 2
    assert all(each == [uuid, "error", 1] for each in stuck)
    assert health == "ok"


ONE_BY_ONE = """
import json, os, sys
from gpusched.probe.nvml import NvmlProbe
probe = NvmlProbe(float(os.environ["GPUSCHED_DRIVER_PATIENCE"]))
rows = []
for fault in ("", "fault * 1 15\\n", ""):
    probe.close()
    with open(os.environ["NVML_STAND_IN"], "a") as file:
        file.write(fault)
    device = probe.read().devices[1]
    rows.append([device.uuid, device.name, device.health])
print(json.dumps(rows))
"""


def test_a_device_that_is_lost_later_keeps_the_identity_it_had(stand_in: StandIn) -> None:
    before, after, _ = stand_in.host(FOUR_V100).json(["-c", ONE_BY_ONE])
    assert before[2] == "ok"
    assert after == [before[0], before[1], "lost"]


def test_a_mismatch_or_a_refusal_is_a_fault_of_the_host_and_a_missing_driver_is_not(stand_in: StandIn) -> None:
    code = """
import json
from gpusched.errors import HostFault
from gpusched.probe.base import read_inventory, require_usable
try:
    require_usable(read_inventory(None)[0])
    print("0")
except HostFault as error:
    print(json.dumps([error.exit_code, error.message]))
"""
    answers = {
        number: stand_in.host(f"{FOUR_V100}fault nvmlInitWithFlags * {number}\n").json(["-c", code])
        for number in (4, 9, 18)
    }
    assert answers[9] == 0
    assert answers[4][0] == answers[18][0] == 5
    assert "reboot or reload the modules" in answers[18][1]


def test_rounding_is_down_to_whole_mib(stand_in: StandIn) -> None:
    assert json.dumps(read(stand_in.host("gpus 1\nset 0 used 1\n"))["devices"][0]["memory_used_mib"]) == "1"
