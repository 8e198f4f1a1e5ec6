"""What slows a device: NVML's mask in words, by the call of today and by that of older drivers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device, Inventory
from gpusched.probe.nvml_fields import slowed_by
from gpusched.render.html import status_html
from tests.probe.test_nvml import read
from tests.stand_in.library import EIGHT_A100, FOUR_V100, StandIn

IDLE = 0x1
BITS = {
    0x2: "application clocks",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}
MASKS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("bit", "name"), BITS.items())
def test_each_reason_has_its_name(bit: int, name: str) -> None:
    assert slowed_by(bit) == (name,)


def test_the_names_are_those_of_the_binding_by_number() -> None:
    import pynvml

    values = {vars(pynvml)[name] for name in vars(pynvml) if name.startswith("nvmlClocks") and not name.endswith("All")}
    assert values == {0, IDLE, *BITS}


@given(MASKS)
def test_a_mask_is_the_reasons_of_its_bits_each_once(mask: int) -> None:
    one_by_one = {name for bit in range(64) for name in slowed_by(mask & 1 << bit)}
    names = slowed_by(mask)
    assert len(names) == len(set(names))
    assert set(names) == one_by_one


@given(MASKS)
def test_an_idle_device_is_not_slowed_by_that(mask: int) -> None:
    assert slowed_by(mask | IDLE) == slowed_by(mask & ~IDLE)
    assert (slowed_by(mask) == ()) == (mask in (0, IDLE))


def test_a_reason_of_a_later_driver_is_named_by_its_number() -> None:
    assert slowed_by(0x4 | 1 << 11 | 1 << 40) == ("power limit", "reason 0x800", "reason 0x10000000000")


@pytest.mark.parametrize("age", ["today", "r418"])
def test_drivers_of_any_age_tell_it_by_the_name_that_they_have(stand_in: StandIn, age: str) -> None:
    devices = read(stand_in.host(f"{FOUR_V100}set 1 clocks 0x4c\nset 2 clocks -1\n", age=age))["devices"]
    assert [device["slowed_by"] for device in devices] == [[], ["power limit", "heat", "hardware slowdown"], None, []]


def test_a_lost_device_and_a_mig_instance_do_not_tell_it(stand_in: StandIn) -> None:
    scenario = f"{EIGHT_A100}set * clocks 4\nfault * 7 15\n"
    devices: list[dict[str, Any]] = read(stand_in.host(scenario))["devices"]
    told = {(device["index"], device["mig_index"]): device["slowed_by"] for device in devices}
    assert (told[0, None], told[0, 1], told[5, None], told[7, None]) == (["power limit"], None, ["power limit"], None)


def test_a_notebook_shows_it_and_no_markup_of_others() -> None:
    slow = Device(index=0, uuid="GPU-a", name="V100", power_w=248, power_limit_w=250, slowed_by=("power limit", "<b>"))
    other = Device(index=1, uuid="GPU-b", name="V100", slowed_by=())
    inventory = Inventory(host="h", source="file", devices=(slow, other), cpus=())
    page = status_html(Snapshot(inventory=inventory, jobs=(), leases=(), holders={}, time=0.0))
    assert page.count("slowed by") == 1
    assert "slowed by: power limit (248 of 250 W), &lt;b&gt;" in page
