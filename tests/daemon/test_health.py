"""Which events, counters and losses drain a device, and which do not; with real events from a real library."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.daemon.health import DRAINING_XIDS, assess
from gpusched.model.device import Device, Health, Inventory
from gpusched.probe.drained import Drained, lift
from gpusched.probe.nvml_events import DeviceEvent
from tests.stand_in.library import FOUR_V100, StandIn

NOW = 1_700_000_000.0
APPLICATION_XIDS = (13, 31, 43, 45, 68, 69)


def host(ecc: int | None = 0, health: Health = "ok") -> Inventory:
    devices = tuple(
        Device(index=index, uuid=f"GPU-{index}", name="V100", ecc_errors=ecc if index == 1 else 0, health=health)
        for index in range(2)
    )
    return Inventory(host="h", source="nvml", devices=devices, cpus=(0,))


def xid(number: int, uuid: str = "GPU-1") -> DeviceEvent:
    return DeviceEvent(uuid=uuid, number=number)


@pytest.mark.parametrize("number", sorted(DRAINING_XIDS))
def test_a_hardware_xid_drains_its_device_alone_and_says_which(number: int) -> None:
    found = assess(host(), [xid(number)], {}, NOW, "boot")
    assert list(found.drains) == ["GPU-1"]
    drain = found.drains["GPU-1"]
    assert drain.reason == f"Xid {number}, {DRAINING_XIDS[number]}"
    assert (drain.since, drain.boot_id, drain.lifted) == (NOW, "boot", False)


@pytest.mark.parametrize("number", [*APPLICATION_XIDS, 0, 4, 154, 9999])
def test_a_programs_fault_or_an_unknown_xid_is_noted_and_drains_nothing(number: int) -> None:
    found = assess(host(), [xid(number)] * 3, {}, NOW, "boot")
    assert found.drains == {}
    (note,) = found.notes
    assert note.startswith(f"GPU 1: Xid {number}")
    assert note.endswith("(3 times)")


@pytest.mark.parametrize(
    ("errors", "words"), [(1, "1 uncorrected memory error (ECC)"), (7, "7 uncorrected memory err")]
)
def test_uncorrected_memory_errors_drain_with_their_number(errors: int, words: str) -> None:
    assert assess(host(errors), [], {}, NOW, "boot").drains["GPU-1"].reason.startswith(words)


@pytest.mark.parametrize("errors", [0, None])
def test_no_errors_or_no_counter_drain_nothing(errors: int | None) -> None:
    assert assess(host(errors), [], {}, NOW, "boot").drains == {}


def test_lost_devices_are_drained_with_that_reason() -> None:
    drains = assess(host(health="lost"), [], {}, NOW, "boot").drains
    assert [drain.reason for drain in drains.values()] == ["the GPU has fallen off the bus"] * 2


def test_a_device_that_only_does_not_answer_is_not_drained() -> None:
    assert assess(host(health="error"), [], {}, NOW, "boot").drains == {}


def test_all_reasons_of_one_moment_are_told() -> None:
    reason = assess(host(2), [xid(48), xid(95)], {}, NOW, "boot").drains["GPU-1"].reason
    assert reason.split("; ")[0] == "Xid 48, a double-bit memory error"
    assert reason.split("; ")[2].startswith("2 uncorrected")


def test_what_is_drained_is_not_drained_again_and_further_events_are_noted() -> None:
    before = assess(host(2), [], {}, NOW, "boot").drains
    found = assess(host(3), [xid(79)], before, NOW + 1, "boot")
    assert found.drains == {}
    assert found.notes == ("GPU 1: Xid 79, the GPU has fallen off the bus",)


def test_errors_that_a_person_accepted_drain_again_only_when_there_are_others() -> None:
    lifted = lift(assess(host(2), [], {}, NOW, "boot").drains, host(2).devices[1])
    assert assess(host(2), [], lifted, NOW + 1, "boot").drains == {}
    assert assess(host(3), [], lifted, NOW + 1, "boot").drains["GPU-1"].since == NOW + 1
    assert assess(host(2), [xid(48)], lifted, NOW + 1, "boot").drains["GPU-1"].reason.startswith("Xid 48")


def test_described_machines_are_never_drained() -> None:
    described = Inventory(host="h", source="profile", devices=host(5, "lost").devices, cpus=(0,))
    assert assess(described, [xid(79)], {}, NOW, "boot").drains == {}


@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["GPU-0", "GPU-1", "GPU-gone"])), max_size=30))
def test_whatever_comes_only_hardware_xids_drain_and_every_event_is_told(told: list[tuple[int, str]]) -> None:
    found = assess(host(), [xid(number, uuid) for number, uuid in told], {}, NOW, "boot")
    assert set(found.drains) == {uuid for number, uuid in told if number in DRAINING_XIDS}
    words = " ".join([*(drain.reason for drain in found.drains.values()), *found.notes])
    assert all(f"Xid {number}" in words for number, _ in told)


LOOK = """
import json, sys, time
from gpusched.daemon.health import assess
from gpusched.probe.nvml import NvmlProbe
from gpusched.probe.nvml_events import NvmlEvents
import msgspec
probe, listener, drained, notes = NvmlProbe(), NvmlEvents(), {}, []
until = time.monotonic() + 120
while len(drained) + len(notes) < int(sys.argv[1]) and time.monotonic() < until:
    found = assess(probe.read(), listener.events(), drained, time.time(), "boot")
    drained |= found.drains
    notes += found.notes
    time.sleep(0.02)
print(json.dumps([{uuid[7:12]: each.reason for uuid, each in drained.items()}, notes]))
"""
DRAINED: Any = {
    "event 1 xid 79": {"e0001": "Xid 79, the GPU has fallen off the bus"},
    "event 2 xid 48": {"e0002": "Xid 48, a double-bit memory error"},
    "set 2 ecc 4": {"e0002": "4 uncorrected memory errors (ECC) since the driver was loaded"},
    "fault nvmlDeviceGetMemoryInfo_v2 0 15": {"e0000": "the GPU has fallen off the bus"},
}


@pytest.mark.parametrize("line", DRAINED)
def test_what_the_library_tells_of_a_sick_device_drains_that_device(stand_in: StandIn, line: str) -> None:
    host = stand_in.host(f"{FOUR_V100}set * ecc 0\n{line}\n")
    assert json.loads(host.run(["-c", LOOK, "1"]).stdout) == [DRAINED[line], []]


def test_what_the_library_tells_of_a_programs_fault_is_only_noted(stand_in: StandIn) -> None:
    host = stand_in.host(FOUR_V100 + "set * ecc 0\nevent 2 xid 31\n")
    drained, (note,) = json.loads(host.run(["-c", LOOK, "1"]).stdout)
    assert drained == {}
    assert note == "GPU 2: Xid 31, a program read or wrote memory that is not its own"


def test_lifting_needs_no_counter() -> None:
    before = {"GPU-1": Drained(reason="x", since=NOW)}
    assert lift(before, host(None).devices[1])["GPU-1"].ecc_errors == 0
