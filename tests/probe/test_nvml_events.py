"""Events of a host, as real pynvml tells them from a real library: each once, beside a probe, and never an error."""

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tests.stand_in.library import FOUR_V100, StandIn, StandInHost

LISTEN = """
import json, os, sys, time
from gpusched.probe.nvml import NvmlProbe
from gpusched.probe.nvml_events import NvmlEvents
wanted, patience_s, after_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
probe, listener = NvmlProbe(float(os.environ["GPUSCHED_DRIVER_PATIENCE"])), NvmlEvents()
told, until, all_at = [], time.monotonic() + patience_s, None
while time.monotonic() < (until if all_at is None else all_at + after_s):
    some = listener.waiting()
    new = listener.events()
    assert new or not some
    told += new
    if all_at is None and len(told) >= wanted:
        all_at = time.monotonic()
    devices = probe.read().devices
    time.sleep(0.02)
assert not listener.waiting()
listener.close()
probe.close()
print(json.dumps([len(devices), *([each.uuid[7:12], each.number] for each in told)]), flush=True)
"""


def listen(host: StandInHost, wanted: int, after_s: float = 0.0) -> list[list[object]]:
    """Return the events of a host, once that many have come and `after_s` more has gone by."""
    devices, *told = host.json(["-c", LISTEN, str(wanted), str(PATIENCE_S), str(after_s)])
    assert devices == 4
    return list(told)


def test_each_xid_is_told_once_with_its_device_beside_a_probe(stand_in: StandIn) -> None:
    host = stand_in.host(FOUR_V100 + "event 1 xid 79\nevent 3 xid 48\nevent 1 xid 31\n")
    assert listen(host, 3) == [["e0001", 79], ["e0003", 48], ["e0001", 31]]


def test_a_device_without_ecc_tells_its_xids(stand_in: StandIn) -> None:
    assert listen(stand_in.host(FOUR_V100 + "set 2 ecc -1\nevent 2 xid 13\n"), 1) == [["e0002", 13]]


@pytest.mark.parametrize(
    "fault",
    [
        "fault nvmlEventSetCreate * 3",
        "fault nvmlDeviceRegisterEvents * 4",
        "fault nvmlEventSetWait_v2 * 999",
    ],
)
def test_a_driver_that_tells_no_events_has_simply_none(stand_in: StandIn, fault: str) -> None:
    assert listen(stand_in.host(f"{FOUR_V100}event 1 xid 79\n{fault}\n"), 0, 0.5) == []


def test_a_library_without_the_calls_has_simply_no_events(stand_in: StandIn) -> None:
    assert listen(stand_in.host(FOUR_V100 + "event 1 xid 79\n", age="r418"), 0, 0.5) == []


def test_one_device_that_cannot_be_listened_to_does_not_silence_the_others(stand_in: StandIn) -> None:
    faults = "fault nvmlDeviceRegisterEvents 0 15\nevent 0 xid 79\nevent 1 xid 48\n"
    assert listen(stand_in.host(FOUR_V100 + faults), 1) == [["e0001", 48]]


def test_a_call_that_never_returns_keeps_neither_the_caller_nor_the_end_of_the_process(stand_in: StandIn) -> None:
    assert listen(stand_in.host(FOUR_V100 + "fault nvmlEventSetWait_v2 * sleep 600\n"), 0, 0.5) == []


CHANGING = """
import os, sys, time
from gpusched.probe.nvml import NvmlProbe
from gpusched.probe.nvml_events import NvmlEvents
listener, probe = NvmlEvents(), NvmlProbe(float(os.environ["GPUSCHED_DRIVER_PATIENCE"]))
print(probe.read().devices[1].memory_used_mib, flush=True)
until = time.monotonic() + 200
while probe.read().devices[1].memory_used_mib != 700 and time.monotonic() < until:
    time.sleep(0.02)
print(probe.read().devices[1].memory_used_mib, flush=True)
while not (told := listener.events()) and time.monotonic() < until:
    time.sleep(0.02)
print(told[0].number, flush=True)
"""


def test_what_happens_later_is_told_by_those_who_have_nvml_open(stand_in: StandIn) -> None:
    host = stand_in.host(FOUR_V100)
    process = subprocess.Popen([sys.executable, "-c", CHANGING], env=host.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    host.change(FOUR_V100 + "set 1 used 700\nevent 1 xid 63\n")
    assert process.communicate(timeout=PATIENCE_S)[0].splitlines() == ["700", "63"]


def test_a_lost_device_does_not_silence_the_others_for_long(stand_in: StandIn) -> None:
    host = stand_in.host(FOUR_V100 + "set 1 used 0\nfault nvmlEventSetWait_v2 * 15\n")
    process = subprocess.Popen([sys.executable, "-c", CHANGING], env=host.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    host.change(FOUR_V100 + "set 1 used 700\nevent 1 xid 63\n")
    assert process.communicate(timeout=PATIENCE_S)[0].splitlines() == ["700", "63"]


def test_without_a_library_there_are_no_events_and_pynvml_is_not_imported() -> None:
    code = """
import sys, threading
from gpusched.probe.nvml_events import NvmlEvents
listener = NvmlEvents()
for each in threading.enumerate():
    if each.name == "nvml-events":
        each.join(200)
print(listener.events(), "pynvml" in sys.modules)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout
    assert told == "[] False\n"
